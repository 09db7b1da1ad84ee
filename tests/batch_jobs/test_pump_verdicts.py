"""How long a job is held back for what all its items would meet, as pure arithmetic."""

from dataclasses import replace
from uuid import uuid4

import pytest

from batch_jobs.ports import BulkOutcome
from batch_jobs.pump.claiming import ClaimedItem
from batch_jobs.pump.transitions import Attempt, HeldBack, Returned
from batch_jobs.pump.verdicts import (
    WAIT_FIRST_S,
    WAIT_LONGEST_S,
    HeldJobs,
    RetryLimits,
    verdict,
)
from tests.batch_jobs.scripted_pipeline import outcome

DAY_S = 86_400.0
LIMITS = RetryLimits(attempts_max=3, retry_s=5.0)
EMPTY = outcome("insufficient_quota", 429, retryable=True, deferred=True, job_wide=True)
USED_UP = replace(EMPTY, resets_in_s=DAY_S)


@pytest.fixture
def item() -> ClaimedItem:
    """A document under lease."""
    return ClaimedItem(
        item_id=1,
        lease_token=1,
        state="leased",
        attempts=1,
        request_id=uuid4(),
        custom_id="a",
        line=1,
        source_id=None,
        source_offset=0,
        source_bytes=0,
        parent_id=None,
        parts=False,
        bound_pico=None,
        kind="summary",
        endpoint="/v1/chat/completions",
        job_id=uuid4(),
        organization_id=uuid4(),
        project_id=uuid4(),
        key_id=uuid4(),
        job_created_at=None,  # type: ignore[arg-type]  # nobody looks
    )


def held(item: ClaimedItem, *refusals: BulkOutcome) -> list[HeldBack]:
    """What is done about refusals that come one after the other, each as soon as the job runs."""
    jobs, now_s, done = HeldJobs(), 0.0, []
    for refusal in refusals:
        back = jobs.hold(item, refusal, now_s)
        assert back is not None
        now_s += back.wait_s
        done.append(back)
    return done


def test_a_summary_whose_balance_stays_empty_is_paused(item: ClaimedItem) -> None:
    waits = held(item, *[EMPTY] * 9)
    assert [one.wait_s for one in waits] == [2, 4, 8, 16, 32, 64, 128, 256, WAIT_LONGEST_S]
    assert [one.pause_reason for one in waits] == [""] * 8 + ["balance"]


def test_a_quota_that_is_used_up_is_asked_again_and_pauses_nothing(item: ClaimedItem) -> None:
    waits = held(item, *[USED_UP] * 20)
    assert {one.wait_s for one in waits[8:]} == {WAIT_LONGEST_S}
    assert {one.pause_reason for one in waits} == {""}


def test_a_quota_is_asked_again_when_it_resets(item: ClaimedItem) -> None:
    *_, last = held(item, *[USED_UP] * 9, replace(USED_UP, resets_in_s=41.0))
    assert last.wait_s == 41.0
    # Its window may have passed since it refused.
    assert held(item, replace(USED_UP, resets_in_s=-3.0))[0].wait_s == WAIT_FIRST_S


def test_an_empty_balance_is_not_blamed_for_a_quota(item: ClaimedItem) -> None:
    *_, last = held(item, *[USED_UP] * 12, EMPTY)
    assert (last.wait_s, last.pause_reason) == (WAIT_FIRST_S, "")


def test_an_end_users_quota_holds_only_what_is_asked_for_him(item: ClaimedItem) -> None:
    refusal = replace(USED_UP, job_wide=False)
    assert verdict(item, refusal, LIMITS) == Returned(item, Attempt.NOT_MADE, WAIT_LONGEST_S)
    soon = replace(refusal, resets_in_s=30.0)
    assert verdict(item, soon, LIMITS) == Returned(item, Attempt.NOT_MADE, 30.0)


def test_what_would_cost_more_than_its_bound_is_bound_anew(item: ClaimedItem) -> None:
    dearer = outcome("above_bound", 429, retryable=True, deferred=True)
    given_back = verdict(item, replace(dearer, bound_pico=12), LIMITS)
    assert isinstance(given_back, Returned)
    assert (given_back.attempt, given_back.bound_pico) == (Attempt.NOT_MADE, 12)
