"""What happens to leased items, in lists: answered, ended, back in the queue, renewed.

Each function is one transaction over items of any tenants. An item changes only while its fencing
number and its tenant match, and those that did change are returned; job totals move in the same
transaction, so they never drift. Called by the pump, and `forfeit` through the facade.
"""

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection

from batch_jobs.pump.claiming import ClaimedItem

ERROR_MESSAGE_CHARS_MAX = 2000
ERROR_CODE_CHARS_MAX = 64


@dataclass(frozen=True, slots=True)
class Answered:
    """A complete answer to an item, not yet charged."""

    item: ClaimedItem
    answer: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an item: done with a charge, or failed with an error code."""

    item: ClaimedItem
    charge_pico: int = 0
    status_code: int = 200
    error_code: str | None = None
    error_message: str | None = None


class EndedList(NamedTuple):
    """What came of a list of ends: items that ended, whether a job has with them, and those of the
    list that go on being held, since more items share their answers than end at once: the same end
    is to be written again."""

    items: frozenset[int]
    has_finalized: bool
    crowded: frozenset[int]


class Attempt(enum.Enum):
    """What an attempt that did not end its item was."""

    FAILED = enum.auto()
    """One of those an item has."""
    BROKEN_OFF = enum.auto()
    """No fault of the item's: it does not count, but news of its request may still come."""
    NOT_MADE = enum.auto()
    """It never reached an engine: it does not count and leaves no trace."""


@dataclass(frozen=True, slots=True)
class Returned:
    """An item given back, to be claimed again after `wait_s` seconds.

    One with a bound may be charged that much from now on, and is claimed again at once.
    """

    item: ClaimedItem
    attempt: Attempt
    wait_s: float = 0.0
    bound_pico: int | None = None


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A job of which nothing is claimed for `wait_s` seconds; with a reason it is paused."""

    job_id: UUID
    organization_id: UUID
    wait_s: float
    pause_reason: str = ""


def store_answers(answers: Sequence[Answered]) -> frozenset[int]:
    """Keep complete answers, before they are charged. Items not returned were superseded."""
    return _moved(
        "SELECT batch_jobs_store_answers("
        "%s::bigint[], %s::uuid[], %s::bigint[], %s::text[], %s::int[], %s::int[], %s::int[])",
        [
            *_items([answer.item for answer in answers]),
            # PostgreSQL's text holds everything but NUL.
            [answer.answer.replace("\0", "\N{REPLACEMENT CHARACTER}") for answer in answers],
            [answer.prompt_tokens for answer in answers],
            [answer.cached_tokens for answer in answers],
            [answer.completion_tokens for answer in answers],
        ],
    )


def end_items(ends: Sequence[Ended]) -> EndedList:
    """Close items, with all that hangs on them, BATCH_COPIES_MAX copies of answers at most.

    A done item must be answered; a failed one must not be, and nothing was charged for it.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT item_id, finalizing, is_crowded FROM batch_jobs_end_items(%s::bigint[],"
            " %s::uuid[], %s::bigint[], %s::bigint[], %s::smallint[], %s::text[], %s::text[], %s)",
            [
                *_items([end.item for end in ends]),
                [end.charge_pico for end in ends],
                [end.status_code for end in ends],
                [_cut(end.error_code, ERROR_CODE_CHARS_MAX) for end in ends],
                [_cut(end.error_message, ERROR_MESSAGE_CHARS_MAX) for end in ends],
                settings.BATCH_COPIES_MAX,
            ],
        )
        rows = cursor.fetchall()
    return EndedList(
        frozenset(item_id for item_id, _, is_crowded in rows if not is_crowded),
        any(finalizing for _, finalizing, _ in rows),
        frozenset(item_id for item_id, _, is_crowded in rows if is_crowded),
    )


def return_items(returns: Sequence[Returned]) -> frozenset[int]:
    """Give leased items back to the queue; those that were still held."""
    return _moved(
        "SELECT batch_jobs_return_items("
        "%s::bigint[], %s::uuid[], %s::bigint[], %s::float8[], %s::bool[], %s::bool[],"
        " %s::bigint[])",
        [
            *_items([one.item for one in returns]),
            [one.wait_s for one in returns],
            [one.attempt is Attempt.FAILED for one in returns],
            [one.attempt is Attempt.NOT_MADE for one in returns],
            [one.bound_pico for one in returns],
        ],
    )


def renew(items: Collection[ClaimedItem], lease_s: int, grace_s: int) -> frozenset[int]:
    """Let leases run for `lease_s` more seconds; those that are still held, and still wanted.

    Those of a job that was cancelled or has expired are wanted for `grace_s` seconds from then on.
    """
    return _moved(
        "SELECT batch_jobs_renew_items(%s::bigint[], %s::uuid[], %s::bigint[], %s, %s)",
        [*_items(list(items)), lease_s, grace_s],
    )


def hold_back(jobs: Sequence[HeldBack]) -> None:
    """Have nothing of these jobs claimed for a while."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT batch_jobs_hold_back(%s::uuid[], %s::uuid[], %s::float8[], %s::text[])",
            [
                [job.job_id for job in jobs],
                [job.organization_id for job in jobs],
                [job.wait_s for job in jobs],
                [job.pause_reason for job in jobs],
            ],
        )


def forfeit(request_ids: Collection[UUID]) -> frozenset[UUID]:
    """Those of `request_ids` whose answers were never stored, so that nothing may be charged.

    Their items go back to the queue, and an answer that comes after all is refused. Ids that are
    no attempts of ours are not returned.
    """
    if not request_ids:
        return frozenset()
    with connection.cursor() as cursor:
        cursor.execute("SELECT batch_jobs_forfeit_items(%s)", [list(request_ids)])
        return frozenset(row[0] for row in cursor.fetchall())


def _items(items: Sequence[ClaimedItem]) -> list[list[Any]]:
    return [
        [item.item_id for item in items],
        [item.organization_id for item in items],
        [item.lease_token for item in items],
    ]


def _moved(statement: str, values: Sequence[Any]) -> frozenset[int]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return frozenset(row[0] for row in cursor.fetchall())


def _cut(text: str | None, chars_max: int) -> str | None:
    return None if text is None else text.replace("\0", "")[:chars_max]
