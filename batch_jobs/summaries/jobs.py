"""Creating and reading summarisation jobs, always inside one tenant's scope.

Never reads a document: that is ingestion's, on a worker. Called by the facade.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from batch_jobs.contracts import Owner, SummaryInfo


@dataclass(frozen=True, slots=True)
class SummaryOrder:
    """What a job is asked to do. `options` as `options.parse_options` reads them."""

    input_file_ids: Sequence[UUID]
    options: Mapping[str, Any]  # JSON
    budget_pico: int | None = None
    deadline_at: datetime | None = None
    starts_itself: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)


def create_summary(owner: Owner, order: SummaryOrder) -> SummaryInfo:
    """A job whose documents workers will read, and run unless it is to wait.

    Raises InputInvalid, FileMissing, ModelUnknown, TooMuchEnqueued.
    """
    raise NotImplementedError


def read_summary(owner: Owner, job_id: UUID) -> SummaryInfo:
    """One job of the project; raises JobNotFound, also for another project's."""
    raise NotImplementedError


def list_summaries(
    owner: Owner, *, rows_max: int, after: UUID | None = None, ascending: bool = False
) -> list[SummaryInfo]:
    """The project's jobs, newest first unless `ascending`; raises JobNotFound of `after`."""
    raise NotImplementedError
