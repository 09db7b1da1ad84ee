"""What becomes of an item, given how its attempt went; and how long a job is held back. Pure."""

from collections import OrderedDict
from dataclasses import dataclass
from uuid import UUID

from batch_jobs.models import JobKind
from batch_jobs.ports import BulkOutcome
from batch_jobs.pump.claiming import ClaimedItem
from batch_jobs.pump.transitions import Attempt, Ended, HeldBack, Returned

WAIT_FIRST_S = 2.0
WAIT_LONGEST_S = 300.0
"""Of a job that cannot run now: each time twice as long as before."""
HELD_S = 2.0
"""Of an item of such a job."""
JOBS_REMEMBERED_MAX = 1024
NO_BALANCE = 429
KEYS_FAULT = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """How often an item is tried, and how long it waits for the second time, in seconds."""

    attempts_max: int
    retry_s: float


def verdict(item: ClaimedItem, outcome: BulkOutcome, limits: RetryLimits) -> Ended | Returned:
    """Done, failed or back in the queue."""
    if outcome.error_code is None:
        return Ended(item, outcome.charge_pico)
    if outcome.deferred:
        return Returned(item, Attempt.NOT_MADE, _wait_s(outcome, limits), outcome.bound_pico)
    if outcome.job_wide:
        return Returned(item, Attempt.BROKEN_OFF, HELD_S)
    if outcome.retryable and item.attempts < limits.attempts_max:
        longer = 2 ** min(item.attempts - 1, 5)
        return Returned(item, Attempt.FAILED, limits.retry_s * longer)
    return failed(item, outcome.status_code, outcome.error_code, outcome.error_message)


def _wait_s(outcome: BulkOutcome, limits: RetryLimits) -> float:
    if outcome.job_wide:
        # A job that is held back is claimed again when that is over, if its owner does not resume
        # it before.
        return HELD_S
    if outcome.resets_in_s is not None:
        return max(WAIT_FIRST_S, min(WAIT_LONGEST_S, outcome.resets_in_s))
    return limits.retry_s


def failed(item: ClaimedItem, status_code: int, code: str, message: str | None) -> Ended:
    """An item that ends without an answer."""
    return Ended(item, 0, status_code, code, message or code)


@dataclass(slots=True)
class _Held:
    until_s: float
    wait_s: float
    is_by_quota: bool


class HeldJobs:
    """Jobs that this process found unable to run, each with a growing wait."""

    def __init__(self) -> None:
        self._held: OrderedDict[UUID, _Held] = OrderedDict()

    def hold(self, item: ClaimedItem, outcome: BulkOutcome, now_s: float) -> HeldBack | None:
        """How to hold the item's job back; None where that has been done already.

        A batch waits for as long as it has; a summarisation is paused until its owner resumes it,
        at once for a key that is revoked, and for a balance that stayed empty. A quota is asked
        again and again, no later than it resets: requests that run may take it up, and its owner
        may raise it.
        """
        known = self._held.get(item.job_id)
        if known is not None and now_s < known.until_s:
            return None
        is_by_quota = outcome.resets_in_s is not None
        wait_s = WAIT_FIRST_S
        if known is not None and known.is_by_quota == is_by_quota:
            wait_s = min(WAIT_LONGEST_S, known.wait_s * 2)
        reason = ""
        if outcome.resets_in_s is not None:
            wait_s = min(wait_s, max(WAIT_FIRST_S, outcome.resets_in_s))
        elif item.kind == JobKind.SUMMARY:
            if outcome.status_code in KEYS_FAULT:
                reason = "key"
            elif outcome.status_code == NO_BALANCE and wait_s >= WAIT_LONGEST_S:
                reason = "balance"
        self._held[item.job_id] = _Held(now_s + wait_s, wait_s, is_by_quota)
        self._held.move_to_end(item.job_id)
        if len(self._held) > JOBS_REMEMBERED_MAX:
            self._held.popitem(last=False)
        return HeldBack(item.job_id, item.organization_id, wait_s, reason)

    def runs(self, job_id: UUID) -> None:
        """A request of the job came to an end: what it waited for is over."""
        self._held.pop(job_id, None)
