"""How fast a job goes and when it is done: what the maths says, and what it does not."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch_jobs.contracts import Progress
from batch_jobs.summaries.progress import (
    BUCKET_S,
    STANDING,
    WINDOW_S,
    Course,
    Sample,
    is_at_risk,
    progress_of,
    window_start,
)

NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)
COURSE = Course(
    runs=True,
    since=LONG_AGO,
    documents_left=100,
    prompt_tokens=1000,
    completion_tokens=500,
    prompt_tokens_estimated=5000,
)


def minute(items: int, tokens: int) -> list[Sample]:
    """A minute in which so much ended in each of its samples."""
    return [
        Sample(NOW - timedelta(seconds=seconds), items, tokens)
        for seconds in range(WINDOW_S, 0, -BUCKET_S)
    ]


counts = st.integers(min_value=0, max_value=10**9)
courses = st.builds(
    Course,
    runs=st.booleans(),
    since=st.none() | st.timedeltas(timedelta(), timedelta(days=9)).map(lambda ago: NOW - ago),
    documents_left=counts,
    prompt_tokens=counts,
    completion_tokens=counts,
    prompt_tokens_estimated=st.none() | counts,
)
samples = st.lists(
    st.builds(
        Sample,
        at=st.timedeltas(timedelta(minutes=-1), timedelta(minutes=3)).map(lambda ago: NOW - ago),
        items=counts,
        tokens=counts,
    ),
    max_size=20,
).map(lambda some: sorted(some, key=lambda one: one.at))


def test_it_goes_by_the_tokens_left_at_the_speed_of_the_last_minute() -> None:
    progress = progress_of(COURSE, minute(items=5, tokens=150), NOW)

    # 4,000 prompt tokens are left, each with half a completion token, at 15 tokens a second.
    assert progress.documents_per_s == 0.5
    assert progress.tokens_per_s == 15
    assert progress.remaining_s == 400
    assert progress.finishes_at == NOW + timedelta(seconds=400)


def test_where_the_estimate_was_too_low_it_goes_by_documents() -> None:
    beyond = replace(COURSE, prompt_tokens=6000)

    assert progress_of(beyond, minute(5, 150), NOW).remaining_s == 200
    assert (
        progress_of(replace(COURSE, prompt_tokens_estimated=None), minute(5, 150), NOW).remaining_s
        == 200
    )


def test_a_job_that_began_lately_is_measured_since_it_began() -> None:
    young = replace(COURSE, since=NOW - timedelta(seconds=20))
    progress = progress_of(young, [Sample(NOW - timedelta(seconds=10), 10, 300)], NOW)

    assert progress.documents_per_s == 0.5
    assert progress.tokens_per_s == 15


def test_a_job_that_began_just_now_has_no_end_to_tell() -> None:
    newborn = replace(COURSE, since=NOW - timedelta(seconds=3))
    progress = progress_of(newborn, [Sample(NOW - timedelta(seconds=3), 9, 90)], NOW)

    assert progress.documents_per_s == 3
    assert progress.remaining_s is None


def test_nothing_that_ended_means_nothing_known() -> None:
    assert progress_of(COURSE, [], NOW) == Progress(0.0, 0.0, None, None)


def test_what_ended_more_than_a_minute_ago_does_not_count() -> None:
    old = [Sample(window_start(NOW) - timedelta(seconds=BUCKET_S), 1000, 100_000)]

    assert progress_of(COURSE, old, NOW).tokens_per_s == 0


def test_a_job_that_stands_still_has_no_end() -> None:
    assert progress_of(replace(COURSE, runs=False), minute(5, 150), NOW) == STANDING


def test_an_end_that_lies_beyond_all_years_is_not_told() -> None:
    endless = replace(COURSE, prompt_tokens_estimated=10**15)

    assert progress_of(endless, minute(1, 1), NOW).remaining_s is None


@given(course=courses, some=samples)
def test_what_is_told_makes_sense(course: Course, some: list[Sample]) -> None:
    progress = progress_of(course, some, NOW)

    assert progress.documents_per_s >= 0
    assert progress.tokens_per_s >= 0
    assert (progress.remaining_s is None) == (progress.finishes_at is None)
    if progress.remaining_s is not None:
        assert course.runs
        assert progress.remaining_s >= 0
        assert progress.finishes_at == NOW + timedelta(seconds=progress.remaining_s)


@given(course=courses, tokens=st.integers(1, 10**6), done=st.integers(0, 10**6))
def test_the_more_is_done_the_sooner_it_ends(course: Course, tokens: int, done: int) -> None:
    running = replace(course, runs=True, since=LONG_AGO, prompt_tokens=done + 1)
    estimated = replace(running, prompt_tokens_estimated=done + 2_000_000, completion_tokens=0)
    further = replace(estimated, prompt_tokens=done + 1_000_000)
    before = progress_of(estimated, minute(1, tokens), NOW).remaining_s
    after = progress_of(further, minute(1, tokens), NOW).remaining_s

    assert before is not None
    assert after is not None
    assert after <= before


@given(factor=st.integers(2, 1000))
def test_twice_as_fast_takes_half_as_long(factor: int) -> None:
    slow = progress_of(COURSE, minute(1, 30), NOW)
    fast = progress_of(COURSE, minute(factor, 30 * factor), NOW)

    assert slow.remaining_s is not None
    assert fast.remaining_s is not None
    assert abs(fast.remaining_s - slow.remaining_s / factor) <= 1


@pytest.mark.parametrize(
    ("finishes_in_s", "deadline_in_s", "at_risk"),
    [(100, 200, False), (200, 100, True), (None, 100, False), (None, -1, True), (100, 0, True)],
)
def test_a_deadline_is_at_risk_when_the_end_lies_behind_it(
    finishes_in_s: int | None, deadline_in_s: int, at_risk: bool
) -> None:
    finishes_at = None if finishes_in_s is None else NOW + timedelta(seconds=finishes_in_s)
    progress = Progress(1.0, 1.0, finishes_in_s, finishes_at)

    assert is_at_risk(progress, NOW + timedelta(seconds=deadline_in_s), NOW) is at_risk
