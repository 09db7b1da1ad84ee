"""What usage and cost reports are asked for: their query strings, read strictly.

OpenAI's names and pages, with ours beside them: times may also be dates of the organization, and
`tag` looks at one of its cost tags. Called by the views of usage and costs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID
from zoneinfo import ZoneInfo

from django.utils import timezone
from rest_framework.request import Request

from billing.contracts import BucketWidth, ServiceTier, UsageDimension, UsageQuery
from billing.facade import bucket_end
from headrace import errors
from headrace.management_api.paging import check_query

END_USER = "user"
"""The tag that the end user is."""
YEARS = range(2000, 2200)
VALUES_MAX = 100
"""Values of one filter."""
TEXT_CHARS_MAX = 128
PAGE = "page_"
BATCH = {"true": (ServiceTier.BATCH,), "false": (ServiceTier.INTERACTIVE,)}
PARAMETERS = ("start_time", "end_time", "bucket_width", "group_by", "project_ids", "api_key_ids")
PAGE_PARAMETERS = ("limit", "page")
USAGE_PARAMETERS = ("models", "user_ids", "batch", "tag", "tag_values")
USAGE_GROUPS = {
    "project_id": UsageDimension.PROJECT,
    "api_key_id": UsageDimension.KEY,
    "model": UsageDimension.MODEL,
    "batch": UsageDimension.TIER,
}
TAG_GROUP = "tag"
USER_GROUP = "user_id"


@dataclass(frozen=True, slots=True)
class BucketLimits:
    """How many buckets a page has: unless asked, and at most."""

    default: int
    maximum: int


USAGE_LIMITS = {
    BucketWidth.DAY: BucketLimits(7, 31),
    BucketWidth.HOUR: BucketLimits(24, 168),
    BucketWidth.MINUTE: BucketLimits(60, 1440),
}


def asked_usage(request: Request, time_zone: str, *, paged: bool = True) -> UsageQuery:
    """The query string of a usage report; days are those of `time_zone`. A file has no pages.

    Raises ApiError 400 that names the parameter.
    """
    check_query(request, *PARAMETERS, *USAGE_PARAMETERS, *(PAGE_PARAMETERS if paged else ()))
    width = _width(request)
    groups = _texts(request, "group_by")
    tag, tag_values = _tag(request, groups)
    for group in groups:
        if group not in {*USAGE_GROUPS, USER_GROUP, TAG_GROUP}:
            raise errors.invalid(f"Cannot group by '{group}'.", "group_by")
    start_at, end_at = _span(request, width, time_zone)
    return UsageQuery(
        start_at=start_at,
        end_at=end_at,
        width=width,
        time_zone=time_zone,
        group_by=frozenset(USAGE_GROUPS[group] for group in groups if group in USAGE_GROUPS),
        tag=tag,
        by_tag=USER_GROUP in groups or TAG_GROUP in groups,
        tag_values=tag_values,
        project_ids=_ids(request, "project_ids"),
        key_ids=_ids(request, "api_key_ids"),
        models=tuple(_texts(request, "models")),
        tiers=_tiers(request),
        buckets_max=_limit(request, USAGE_LIMITS[width]),
    )


def asked_costs(
    request: Request, groups: Mapping[str, frozenset[UsageDimension]], limits: BucketLimits
) -> UsageQuery:
    """The query string of a cost report: UTC days. Raises ApiError 400 that names the parameter."""
    check_query(request, *PARAMETERS, *PAGE_PARAMETERS)
    if request.query_params.get("bucket_width", "1d") != "1d":
        raise errors.invalid("'bucket_width' of costs must be '1d'.", "bucket_width")
    asked = _texts(request, "group_by")
    for group in asked:
        if group not in groups:
            raise errors.invalid(f"Cannot group costs by '{group}'.", "group_by")
    start_at, end_at = _span(request, BucketWidth.DAY, "UTC")
    return UsageQuery(
        start_at=start_at,
        end_at=end_at,
        group_by=frozenset().union(*(groups[group] for group in asked)),
        project_ids=_ids(request, "project_ids"),
        key_ids=_ids(request, "api_key_ids"),
        buckets_max=_limit(request, limits),
    )


def next_page(next_at: datetime | None) -> str | None:
    """The cursor of the page that starts there."""
    return None if next_at is None else f"{PAGE}{int(next_at.timestamp())}"


def asked_instant(request: Request, name: str, time_zone: str) -> datetime | None:
    """A parameter as an instant: Unix seconds, or an ISO 8601 date or time.

    What names no zone is in `time_zone`; a date is its midnight. Raises ApiError 400.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        at = _instant(text, ZoneInfo(time_zone))
    except (ValueError, OverflowError):
        raise errors.invalid(
            f"'{name}' must be Unix seconds, or a date or time by ISO 8601.", name
        ) from None
    if at.year not in YEARS:
        raise errors.invalid(f"'{name}' must be of the years 2000 to 2199.", name)
    return at


def _instant(text: str, zone: ZoneInfo) -> datetime:
    if text.isascii() and text.isdecimal() and len(text) != len("20260101"):
        return datetime.fromtimestamp(int(text), UTC)
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        at = at.replace(tzinfo=zone)
    return at.astimezone(UTC)


def _span(request: Request, width: BucketWidth, time_zone: str) -> tuple[datetime, datetime]:
    """From `page` or `start_time` to `end_time`, or to the end of the bucket that runs now."""
    start_at = asked_instant(request, "start_time", time_zone)
    if start_at is None:
        raise errors.invalid("'start_time' is required.", "start_time")
    end_at = asked_instant(request, "end_time", time_zone)
    if end_at is None:
        end_at = bucket_end(max(timezone.now(), start_at), width, time_zone)
    if start_at >= end_at:
        raise errors.invalid("'end_time' must be after 'start_time'.", "end_time")
    page = request.query_params.get("page")
    if page is None:
        return start_at, end_at
    seconds = page.removeprefix(PAGE)
    if not (page.startswith(PAGE) and seconds.isascii() and seconds.isdecimal()):
        raise errors.invalid("'page' must be the 'next_page' of an answer.", "page")
    if not start_at.timestamp() <= int(seconds[:12]) < end_at.timestamp():
        raise errors.invalid("'page' lies outside of the times asked for.", "page")
    return datetime.fromtimestamp(int(seconds[:12]), UTC), end_at


def _width(request: Request) -> BucketWidth:
    text = request.query_params.get("bucket_width", BucketWidth.DAY.value)
    if text not in {width.value for width in USAGE_LIMITS}:
        raise errors.invalid("'bucket_width' must be '1m', '1h' or '1d'.", "bucket_width")
    return BucketWidth(text)


def _limit(request: Request, limits: BucketLimits) -> int:
    text = request.query_params.get("limit")
    if text is None:
        return limits.default
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= limits.maximum:
        raise errors.invalid(f"'limit' must be a number from 1 to {limits.maximum}.", "limit")
    return int(text)


def _texts(request: Request, name: str) -> list[str]:
    """A parameter's values, given as `name` once or as `name[]` often."""
    query = request.query_params
    values = [*query.getlist(name), *query.getlist(f"{name}[]")]
    if len(values) > VALUES_MAX:
        raise errors.invalid(f"'{name}' has more than {VALUES_MAX} values.", name)
    for value in values:
        if not 1 <= len(value) <= TEXT_CHARS_MAX or "\0" in value:
            raise errors.invalid(f"'{name}' has a value that cannot be.", name)
    return values


def _ids(request: Request, name: str) -> tuple[UUID, ...]:
    try:
        return tuple(UUID(text) for text in _texts(request, name))
    except ValueError:
        raise errors.invalid(f"'{name}' must be ids.", name) from None


def _tiers(request: Request) -> tuple[ServiceTier, ...]:
    text = request.query_params.get("batch")
    if text is None:
        return ()
    if text.lower() not in BATCH:
        raise errors.invalid("'batch' must be 'true' or 'false'.", "batch")
    return BATCH[text.lower()]


def _tag(request: Request, groups: list[str]) -> tuple[str | None, tuple[str, ...]]:
    """The one tag that is looked at, and the values of it that are kept."""
    users = _texts(request, "user_ids")
    named = _texts(request, "tag")
    values = _texts(request, "tag_values")
    if users or USER_GROUP in groups:
        if named or values or TAG_GROUP in groups:
            raise errors.invalid("A report looks at users or at one tag, not at both.", "tag")
        return END_USER, tuple(users)
    if (values or TAG_GROUP in groups) != bool(named):
        raise errors.invalid("'tag' names the tag that 'group_by' or 'tag_values' is about.", "tag")
    return (named[0], tuple(values)) if named else (None, ())
