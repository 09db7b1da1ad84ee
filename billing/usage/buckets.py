"""Where the buckets of a report begin and end. Pure.

Instants are aware; minutes and hours are those of UTC, days those of a time zone, so one may have
23 or 25 hours. Called by the reports beside it.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from billing.contracts import BucketWidth

HOUR = timedelta(hours=1)
STEPS = {BucketWidth.MINUTE: timedelta(minutes=1), BucketWidth.HOUR: HOUR}


def bucket_bounds(
    start_at: datetime, end_at: datetime, width: BucketWidth, time_zone: str, buckets_max: int
) -> list[datetime]:
    """Where each bucket begins, and where the last one ends: one instant more than buckets.

    Buckets lie on the clock's minutes, hours or days; the first begins at `start_at` and the last
    ends at `end_at` or after `buckets_max`. Raises ValueError unless the span is positive.
    """
    if start_at >= end_at:
        raise ValueError("the span of a report must not be empty")
    bounds = [start_at.astimezone(UTC)]
    while len(bounds) <= buckets_max and bounds[-1] < end_at:
        following = end_at.astimezone(UTC)
        if width is not BucketWidth.SPAN:
            following = min(following, bucket_end(bounds[-1], width, time_zone))
        bounds.append(following)
    return bounds


def bucket_end(at: datetime, width: BucketWidth, time_zone: str) -> datetime:
    """Where the bucket that an instant lies in ends."""
    if width is BucketWidth.DAY:
        today = at.astimezone(ZoneInfo(time_zone)).date()
        return local_midnight(today + timedelta(days=1), time_zone)
    step = STEPS[width]
    return at - (at - datetime.min.replace(tzinfo=UTC)) % step + step


def cut_hours(bounds: Sequence[datetime]) -> list[datetime]:
    """Hours that a bound lies inside of: their rollups belong to no single bucket."""
    return sorted({hour_of(at) for at in bounds if at != hour_of(at)})


def cut_pieces(bounds: Sequence[datetime]) -> list[tuple[datetime, datetime]]:
    """The spans of those hours, within the bounds; what touches is one span."""
    pieces: list[tuple[datetime, datetime]] = []
    for hour in cut_hours(bounds):
        start, end = max(hour, bounds[0]), min(hour + HOUR, bounds[-1])
        if pieces and pieces[-1][1] == start:
            start = pieces.pop()[0]
        pieces.append((start, end))
    return pieces


def previous_span(
    start_at: datetime, end_at: datetime, time_zone: str
) -> tuple[datetime, datetime]:
    """What to compare a span with: as many whole local months or days before it, or as long a time.

    Days that still run are compared with the same part of those before. Raises ValueError unless
    the span is positive.
    """
    if start_at >= end_at:
        raise ValueError("the span of a report must not be empty")
    day, end_day = (at.astimezone(ZoneInfo(time_zone)).date() for at in (start_at, end_at))
    if start_at != local_midnight(day, time_zone):
        return start_at - (end_at - start_at), start_at
    is_whole = end_at == local_midnight(end_day, time_zone)
    if is_whole and day.day == end_day.day == 1:
        months = 12 * (end_day.year - day.year) + end_day.month - day.month
        year, month = divmod(12 * day.year + day.month - 1 - months, 12)
        return local_midnight(day.replace(year=year, month=month + 1), time_zone), start_at
    days = (end_day - day).days + (not is_whole)
    before = local_midnight(day - timedelta(days=days), time_zone)
    return before, start_at if is_whole else min(before + (end_at - start_at), start_at)


def local_midnight(day: date, time_zone: str) -> datetime:
    """When a local day begins."""
    return datetime.combine(day, time(), ZoneInfo(time_zone)).astimezone(UTC)


def hour_of(at: datetime) -> datetime:
    """When the UTC hour of an instant began."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
