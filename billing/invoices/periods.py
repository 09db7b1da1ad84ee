"""Calendar months of a time zone, as instants: what one invoice covers.

Pure. A month begins at its first local midnight, whatever the clocks do, and an event at that very
instant belongs to it. Called by the closing of invoices.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

GRACE = timedelta(hours=24)
"""How long after a period's end its invoice waits for late events."""
SHORTEST = timedelta(days=14)
"""A period after a change of time zone is rather longer than a month than a sliver of one."""


@dataclass(frozen=True, slots=True)
class Period:
    """From `start_at`, inclusive, until `end_at`, exclusive; both UTC."""

    start_at: datetime
    end_at: datetime

    def __contains__(self, moment: datetime) -> bool:
        return self.start_at <= moment < self.end_at

    def closes_at(self) -> datetime:
        """When its invoice may be issued."""
        return self.end_at + GRACE


def month_of(moment: datetime, zone: ZoneInfo) -> Period:
    """The local calendar month that this aware instant belongs to."""
    local = moment.astimezone(zone)
    start_at = _month_start(local.year, local.month, zone)
    if moment < start_at:  # the clock was turned back across the month's first midnight
        return Period(_start_before(start_at, zone), start_at)
    return Period(start_at, _start_after(start_at, zone))


def period_after(start_at: datetime, zone: ZoneInfo) -> Period:
    """The period that begins at `start_at`, where the one before ended.

    It ends with a local month, the first that leaves it at least SHORTEST long: after a change of
    time zone `start_at` is no month's beginning any more.
    """
    end_at = month_of(start_at, zone).end_at
    while end_at - start_at < SHORTEST:
        end_at = _start_after(end_at, zone)
    return Period(start_at, end_at)


def _month_start(year: int, month: int, zone: ZoneInfo) -> datetime:
    # A midnight that the clocks skip reads as the instant they skip it, one that comes twice as
    # the first of both.
    return datetime(year, month, 1, tzinfo=zone).astimezone(UTC)


def _start_after(start_at: datetime, zone: ZoneInfo) -> datetime:
    later = (start_at + timedelta(days=45)).astimezone(zone)
    return _month_start(later.year, later.month, zone)


def _start_before(start_at: datetime, zone: ZoneInfo) -> datetime:
    earlier = (start_at - timedelta(days=15)).astimezone(zone)
    return _month_start(earlier.year, earlier.month, zone)
