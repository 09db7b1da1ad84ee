"""Where the buckets of a report begin and end. Pure.

Instants are aware; minutes and hours are those of UTC, days those of a time zone, so one may have
23 or 25 hours. Called by the reports beside it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
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
        zone = ZoneInfo(time_zone)
        tomorrow = at.astimezone(zone).date() + timedelta(days=1)
        return datetime.combine(tomorrow, time(), zone).astimezone(UTC)
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


def hour_of(at: datetime) -> datetime:
    """When the UTC hour of an instant began."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
