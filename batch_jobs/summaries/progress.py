"""How fast a summarisation job goes and when it will be done. Pure.

Says "not known" where nothing can be known: before anything ended, and while a job does not run.
Called whenever a job is shown, and by tending for the warning of a deadline.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from batch_jobs.contracts import Progress

WINDOW_S = 60
"""Over how long speed is measured."""
BUCKET_S = 10
"""How much time one sample covers."""
SPAN_MIN_S = 10
"""A job that has run for less has no speed to speak of."""
REMAINING_MAX_S = 10 * 365 * 24 * 3600
"""What would take longer is not known: it will not go on like this."""
STANDING = Progress(0.0, 0.0, None, None)


@dataclass(frozen=True, slots=True)
class Sample:
    """What ended within the BUCKET_S seconds from `at`."""

    at: datetime
    items: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Course:
    """How far a job has come; `runs` is whether all of it may be computed now.

    Tokens are prompt and completion; `prompt_tokens_estimated` is None where there is no estimate.
    """

    runs: bool
    since: datetime | None
    documents_left: int
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_estimated: int | None


def window_start(now: datetime) -> datetime:
    """The start of the first sample that counts."""
    seconds = int(now.timestamp()) - WINDOW_S
    return datetime.fromtimestamp(seconds - seconds % BUCKET_S, UTC)


def progress_of(course: Course, samples: Sequence[Sample], now: datetime) -> Progress:
    """The speed over the last minute, and the end if it goes on like this."""
    if not course.runs:
        return STANDING
    first = window_start(now)
    counted = [sample for sample in samples if first <= sample.at <= now]
    span_s = _span_s(course, counted, first, now)
    documents_per_s = sum(sample.items for sample in counted) / span_s
    tokens_per_s = sum(sample.tokens for sample in counted) / span_s
    remaining_s = None
    if span_s >= SPAN_MIN_S:
        remaining_s = _remaining_s(course, documents_per_s, tokens_per_s)
    finishes_at = None if remaining_s is None else now + timedelta(seconds=remaining_s)
    return Progress(documents_per_s, tokens_per_s, remaining_s, finishes_at)


def is_at_risk(progress: Progress, deadline_at: datetime, now: datetime) -> bool:
    """Whether an unfinished job is late, or will be if it goes on like this."""
    if now >= deadline_at:
        return True
    return progress.finishes_at is not None and progress.finishes_at > deadline_at


def _span_s(course: Course, counted: Sequence[Sample], first: datetime, now: datetime) -> float:
    """How long the samples took: the window, or less for a job that began within it."""
    began = max(first, course.since or first)
    if counted:  # it is older than it says where it ended something before
        began = min(began, max(first, counted[0].at))
    return max((now - began).total_seconds(), 1.0)


def _remaining_s(course: Course, documents_per_s: float, tokens_per_s: float) -> int | None:
    """By the prompt tokens left, each with as many completion tokens as so far; by the documents
    where the estimate was too low or there is none."""
    if course.documents_left == 0:
        return 0
    prompt_left = (course.prompt_tokens_estimated or 0) - course.prompt_tokens
    if prompt_left > 0 and course.prompt_tokens > 0 and tokens_per_s > 0:
        per_prompt_token = 1 + course.completion_tokens / course.prompt_tokens
        remaining_s = prompt_left * per_prompt_token / tokens_per_s
    elif documents_per_s > 0:
        remaining_s = course.documents_left / documents_per_s
    else:
        return None
    return round(remaining_s) if remaining_s <= REMAINING_MAX_S else None
