"""Another time than now in the books: for history that is made up, so that a house can be shown.

Heard of the housekeeper alone, for as long as it says so, on its own connection (sql/0017_clock.sql
says how). Never for anything that happened: the books of a real tenant know one clock. Called by
the seed of the demo.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

from django.db import connections

from billing.retry import call

HOUSEKEEPER = "housekeeper"


@contextmanager
def clock_at(now: datetime, of_requests: Mapping[UUID, datetime] | None = None) -> Iterator[None]:
    """What the housekeeper writes here was held, settled, paid and issued at `now`.

    Requests that `of_requests` names have times of their own. Never nested.
    """
    lines = [f"{request_id} {at.isoformat()}" for request_id, at in (of_requests or {}).items()]
    _say("\n".join([now.isoformat(), *lines]))
    try:
        yield
    finally:
        _say("")


def prepare_past(since: datetime) -> None:
    """Make room for usage events from this moment on, at most two years ago."""
    call("SELECT billing_ensure_partitions(0, %s)", [since], HOUSEKEEPER)


def _say(said: str) -> None:
    with connections[HOUSEKEEPER].cursor() as cursor:
        cursor.execute("SELECT set_config('headrace.clock', %s, false)", [said])
