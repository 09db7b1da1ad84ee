"""What the owner of a summarisation job may do with it while it lives, each in one guarded UPDATE.

Of several that steer at once one wins, and the others are told in which state the job is. Items are
never touched here: pumps and tending see the job's state.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from batch_jobs.contracts import Owner, SummaryInfo


@dataclass(frozen=True, slots=True)
class NewBounds:
    """What a running job may still change: fields named in `changed`, None takes one away."""

    changed: frozenset[str]
    budget_pico: int | None = None
    deadline_at: datetime | None = None


def start_summary(owner: Owner, job_id: UUID) -> SummaryInfo:
    """Runs a job that is ready; raises JobNotFound, JobStateWrong."""
    raise NotImplementedError


def preview_summary(owner: Owner, job_id: UUID) -> SummaryInfo:
    """Runs three documents of a job that is ready; raises JobNotFound, JobStateWrong."""
    raise NotImplementedError


def pause_summary(owner: Owner, job_id: UUID) -> SummaryInfo:
    """Claims no more of its documents; raises JobNotFound, JobStateWrong."""
    raise NotImplementedError


def resume_summary(owner: Owner, job_id: UUID) -> SummaryInfo:
    """Goes on with a paused job; raises JobNotFound, JobStateWrong, also below its budget."""
    raise NotImplementedError


def cancel_summary(owner: Owner, job_id: UUID) -> SummaryInfo:
    """Ends a job early; what is done stays and is charged. Raises JobNotFound, JobStateWrong."""
    raise NotImplementedError


def retry_summary(owner: Owner, job_id: UUID) -> SummaryInfo:
    """Runs again what has no summary; raises JobNotFound, JobStateWrong, TooMuchEnqueued."""
    raise NotImplementedError


def change_bounds(owner: Owner, job_id: UUID, bounds: NewBounds) -> SummaryInfo:
    """Another budget or deadline for an unfinished job; raises JobNotFound, JobStateWrong."""
    raise NotImplementedError


def delete_results(owner: Owner, job_id: UUID) -> SummaryInfo:
    """Deletes what an ended job made; its totals stay. Raises JobNotFound, JobStateWrong."""
    raise NotImplementedError
