"""What a usage page is asked for: its address, read leniently and written back whole.

The address holds every filter, so that a link says what its sender saw. Pure: a query string and
a moment in, a UsageQuery out. Called by the pages beside this.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from uuid import UUID
from zoneinfo import ZoneInfo

from billing.contracts import BucketWidth, ServiceTier, UsageDimension, UsageQuery
from headrace import errors

TEXT_CHARS_MAX = 128
DAYS_MAX = 366
HOURS_MAX = 168
"""Buckets of a page: longer spans are shown by day, and none longer than this."""
YEARS = range(2000, 2200)
END_USER = "user"
"""The tag that the end user is."""
PRESETS = {
    "24h": "24 hours",
    "7d": "7 days",
    "30d": "30 days",
    "month": "This month",
    "last-month": "Last month",
}
DEFAULT_PRESET = "30d"


class Measure(StrEnum):
    """What the chart's height is."""

    TOKENS = "tokens"
    SPEND = "spend"
    REQUESTS = "requests"


SPLITS = {
    "class": "Token class",
    "model": "Model",
    "project": "Project",
    "key": "API key",
    "tier": "Batch or interactive",
    "user": "End user",
}
"""Beside the organization's cost tags, each as `tag:<name>`."""
TAG_SPLIT = "tag:"
DIMENSIONS = {
    "class": UsageDimension.TIER,
    "model": UsageDimension.MODEL,
    "project": UsageDimension.PROJECT,
    "key": UsageDimension.KEY,
    "tier": UsageDimension.TIER,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The filters of an address. `span` is a preset, or '' for `from_day` to `to_day`."""

    span: str = DEFAULT_PRESET
    from_day: date | None = None
    to_day: date | None = None
    by_hour: bool = False
    split: str = "class"
    measure: Measure = Measure.TOKENS
    project_id: UUID | None = None
    key_id: UUID | None = None
    model: str = ""
    tier: str = ""
    user: str = ""
    tag: str = ""
    tag_value: str = ""
    compares: bool = False

    @property
    def query(self) -> dict[str, object]:
        """The address's query string; what is as it would be anyway is left out."""
        return {
            "span": self.span if self.span != DEFAULT_PRESET and not self.from_day else None,
            "from": self.from_day,
            "to": self.to_day,
            "by": "hour" if self.by_hour else None,
            "split": self.split if self.split != "class" else None,
            "measure": self.measure.value if self.measure is not Measure.TOKENS else None,
            "project": self.project_id,
            "key": self.key_id,
            "model": self.model,
            "tier": self.tier,
            "user": self.user,
            "tag": f"{self.tag}={self.tag_value}" if self.tag else None,
            "compare": "1" if self.compares else None,
        }

    @property
    def counted_tag(self) -> str | None:
        """The one tag that the report looks at: what it is split by goes before what is kept."""
        if self.split == "user" or (self.user and not self.split.startswith(TAG_SPLIT)):
            return END_USER
        if self.split.startswith(TAG_SPLIT):
            return self.split.removeprefix(TAG_SPLIT)
        return self.tag or None


def asked(query: Mapping[str, str], tags: tuple[str, ...]) -> Asked:
    """Of an address; raises ApiError 400 that names what cannot be. `tags` are the cost tags."""
    texts = {name: str(value).strip() for name, value in query.items()}
    for name, text in texts.items():
        if len(text) > 2 * TEXT_CHARS_MAX or "\0" in text:
            raise errors.invalid(f"'{name}' has a value that cannot be.", name)
    tag, equals, tag_value = texts.get("tag", "").partition("=")
    if tag and (not equals or not tag_value):
        raise errors.invalid("'tag' is a name and a value, as in team=search.", "tag")
    wanted = Asked(
        span=_one_of(texts, "span", PRESETS, DEFAULT_PRESET),
        from_day=_day(texts, "from"),
        to_day=_day(texts, "to"),
        by_hour=texts.get("by") == "hour",
        split=_one_of(texts, "split", [*SPLITS, *(f"{TAG_SPLIT}{one}" for one in tags)], "class"),
        measure=Measure(_one_of(texts, "measure", list(Measure), Measure.TOKENS)),
        project_id=_id(texts, "project"),
        key_id=_id(texts, "key"),
        model=texts.get("model", ""),
        tier=_one_of(texts, "tier", list(ServiceTier), ""),
        user=texts.get("user", ""),
        tag=tag,
        tag_value=tag_value,
        compares="compare" in texts,
    )
    if wanted.measure is not Measure.TOKENS and wanted.split == "class":
        wanted = replace(wanted, split="model")  # only tokens have classes
    if wanted.user and (wanted.tag or wanted.split.startswith(TAG_SPLIT)):
        raise errors.invalid("Usage is looked at by end user or by one tag, not by both.", "tag")
    if wanted.tag and wanted.split == END_USER:
        raise errors.invalid("Usage is looked at by end user or by one tag, not by both.", "tag")
    if wanted.tag and wanted.split.startswith(TAG_SPLIT) and wanted.counted_tag != wanted.tag:
        raise errors.invalid("Usage is looked at by one tag at a time.", "tag")
    return wanted


def span_of(wanted: Asked, now: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """From the first moment to before the last; days and months are the zone's.

    Raises ApiError 400 for a span that is empty or longer than DAYS_MAX.
    """
    today = now.astimezone(zone).date()
    if wanted.from_day is not None:
        first, last = wanted.from_day, wanted.to_day or today
        if not first <= last <= first + timedelta(days=DAYS_MAX - 1):
            raise errors.invalid(f"A span is 1 to {DAYS_MAX} days, the first day first.", "to")
        return _midnight(first, zone), _midnight(last + timedelta(days=1), zone)
    match wanted.span:
        case "24h":
            hour_ends_at = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
            return hour_ends_at - timedelta(hours=24), hour_ends_at
        case "month":
            first = today.replace(day=1)
        case "last-month":
            first = (today.replace(day=1) - timedelta(days=1)).replace(day=1)
            return _midnight(first, zone), _midnight(today.replace(day=1), zone)
        case _:
            first = today - timedelta(days=int(wanted.span.removesuffix("d")) - 1)
    return _midnight(first, zone), _midnight(today + timedelta(days=1), zone)


def width_of(wanted: Asked, start_at: datetime, end_at: datetime) -> BucketWidth:
    """Hours where asked for and there is room, and of a span of two days or less."""
    span = end_at - start_at
    if span <= timedelta(days=2) or (wanted.by_hour and span <= timedelta(hours=HOURS_MAX)):
        return BucketWidth.HOUR
    return BucketWidth.DAY


def usage_query(
    wanted: Asked, start_at: datetime, end_at: datetime, width: BucketWidth, zone: ZoneInfo
) -> UsageQuery:
    """The report behind the page."""
    dimension = DIMENSIONS.get(wanted.split)
    group_by = {dimension} if dimension else set()
    tag = wanted.counted_tag
    kept = wanted.user or wanted.tag_value
    return UsageQuery(
        start_at=start_at,
        end_at=end_at,
        width=width,
        time_zone=str(zone),
        group_by=frozenset(group_by),
        tag=tag,
        by_tag=wanted.split == "user" or wanted.split.startswith(TAG_SPLIT),
        tag_values=(kept,) if tag and kept else (),
        project_ids=(wanted.project_id,) if wanted.project_id else (),
        key_ids=(wanted.key_id,) if wanted.key_id else (),
        models=(wanted.model,) if wanted.model else (),
        tiers=(ServiceTier(wanted.tier),) if wanted.tier else (),
        buckets_max=DAYS_MAX if width is BucketWidth.DAY else HOURS_MAX,
    )


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


def _one_of(
    texts: Mapping[str, str], name: str, values: "Mapping[str, str] | list[str]", default: str
) -> str:
    text = texts.get(name) or default
    if text and text not in values:
        raise errors.invalid(f"'{name}' has a value that cannot be.", name)
    return text


def _day(texts: Mapping[str, str], name: str) -> date | None:
    text = texts.get(name)
    if not text:
        return None
    try:
        found = date.fromisoformat(text)
    except ValueError:
        raise errors.invalid(f"'{name}' must be a date, as in 2026-11-29.", name) from None
    if found.year not in YEARS:
        raise errors.invalid(f"'{name}' must be of the years 2000 to 2199.", name)
    return found


def _id(texts: Mapping[str, str], name: str) -> UUID | None:
    text = texts.get(name)
    try:
        return UUID(text) if text else None
    except ValueError:
        raise errors.invalid(f"'{name}' must be an id.", name) from None
