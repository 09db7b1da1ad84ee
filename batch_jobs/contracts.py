"""What other packages see of bulk jobs: frozen values and typed errors."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class SummaryJob:
    """A bulk summarisation as its owner sees it; `state` is queued, running or completed."""

    job_id: UUID
    organization_id: UUID
    state: str
    items_total: int
    items_completed: int
    items_failed: int
    charge_pico: int
    created_at: datetime
    completed_at: datetime | None


@dataclass(frozen=True, slots=True)
class SummaryItem:
    """One document of a job and what became of it.

    `state` is queued, leased, answered (stored, its charge to come), done or failed. `request_id`
    names the latest attempt's request; its receipt shows what was charged.
    """

    custom_id: str
    state: str
    summary: str | None
    error_code: str | None
    error_message: str | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    charge_pico: int
    request_id: UUID | None


class BatchError(Exception):
    """Base of everything this package raises on purpose; `code` is stable."""

    code = "batch_error"


class InputInvalid(BatchError):
    """A line of the input is not a document; the message names the line."""

    code = "invalid_input"


class JobNotFound(BatchError):
    """No such job in this tenant."""

    code = "not_found"
