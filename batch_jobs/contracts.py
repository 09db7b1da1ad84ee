"""What other packages see of bulk jobs: frozen values and typed errors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID


class BatchError(Exception):
    """Base of everything this package raises on purpose; `code` is stable."""

    code = "batch_error"


class InputInvalid(BatchError):
    """A line of the input is not a document; the message names the line."""

    code = "invalid_input"


class JobNotFound(BatchError):
    """No such job in this tenant."""

    code = "not_found"


@dataclass(frozen=True, slots=True)
class Owner:
    """On whose behalf bulk work is asked for: a project, by one of its keys."""

    organization_id: UUID
    project_id: UUID
    key_id: UUID


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A stored file as its owner sees it."""

    file_id: UUID
    project_id: UUID
    purpose: str
    filename: str
    size_bytes: int
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file and where its bytes lie, which is for `read_content` alone."""

    info: FileInfo
    storage_name: str


@dataclass(frozen=True, slots=True)
class LineError:
    """What is wrong with an input; `line` counts from 1 and is None for the file as a whole."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


@dataclass(frozen=True, slots=True)
class BulkJobInfo:
    """A job of either kind as its owner sees it, but for what only summaries have."""

    job_id: UUID
    organization_id: UUID
    project_id: UUID
    key_id: UUID
    kind: str
    state: str
    endpoint: str
    model: str
    metadata: Mapping[str, str]
    input_file_id: UUID | None
    output_file_id: UUID | None
    error_file_id: UUID | None
    errors: tuple[LineError, ...]
    items_total: int
    items_completed: int
    items_failed: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    charge_pico: int
    budget_pico: int | None
    pause_reason: str
    created_at: datetime
    in_progress_at: datetime | None = None
    finalizing_at: datetime | None = None
    completed_at: datetime | None = None
    failed_at: datetime | None = None
    expired_at: datetime | None = None
    cancelling_at: datetime | None = None
    cancelled_at: datetime | None = None
    paused_at: datetime | None = None
    expires_at: datetime | None = None
    deadline_at: datetime | None = None
    output_expires_s: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # a summary's, as JSON
    """Empty for a batch."""


class FileMissing(BatchError):
    """No such file in this project, or it is deleted or expired."""

    code = "not_found"


class StorageFull(BatchError):
    """The organization's files would take more bytes than it may store."""

    code = "storage_quota_exceeded"


class StorageAway(BatchError):
    """Where files lie cannot be reached, or has no room; later it may."""

    code = "storage_unavailable"


class JobStateWrong(BatchError):
    """What was asked for is not possible in the state that the job is in; the message says why."""

    code = "invalid_state"


class TooMuchEnqueued(BatchError):
    """The organization's unfinished jobs would hold more prompt tokens than it may enqueue."""

    code = "token_limit_exceeded"


class ModelUnknown(BatchError):
    """Nothing by this name is for sale to the project at batch price; the message is the name."""

    code = "model_not_found"


@dataclass(frozen=True, slots=True)
class Progress:
    """How fast a job goes, and what that means for its end; None is "not known".

    `remaining_s` is known only while it runs: a job that is paused has none.
    """

    documents_per_s: float
    tokens_per_s: float
    remaining_s: int | None
    finishes_at: datetime | None


@dataclass(frozen=True, slots=True)
class SummaryInfo:
    """A summarisation job as its owner sees it.

    `estimate` is empty until everything is read. `previewing` is a job of which only a few
    documents run before it is ready again. `results_shards` is how many Parquet files it makes.
    """

    job: BulkJobInfo
    input_file_ids: tuple[UUID, ...]
    starts_itself: bool
    documents_duplicate: int
    documents_known: int
    estimate: Mapping[str, Any]  # JSON
    previewing: bool
    results_deleted_at: datetime | None
    results_shards: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class SummaryResult:
    """What became of one document; tokens and charge are those of all its parts together.

    `state` is done, failed, cancelled or expired. A document that is the `same_as` another one has
    that one's summary, and cost nothing. `row` is its place among the rows, for the next page.
    """

    row: int
    custom_id: str
    state: str
    summary: str | None
    error_code: str | None
    error_message: str | None
    source: str | None
    line: int
    same_as: str | None
    request_id: UUID | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    charge_pico: int


@dataclass(frozen=True, slots=True)
class JobView:
    """A job of either kind as people look at it; `summary` is what only a summarisation has."""

    job: BulkJobInfo
    progress: Progress
    summary: SummaryInfo | None


@dataclass(frozen=True, slots=True)
class FailedItem:
    """A line or document that has no answer. `source` is the input file's name, None for a batch
    and for a file that is gone."""

    custom_id: str
    line: int
    source: str | None
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class FailureReport:
    """Why items of a job have no answer: each code with how many, most first, and the first few.

    `is_partial` where the job has more items than were looked at.
    """

    reasons: tuple[tuple[str, int], ...]
    first: tuple[FailedItem, ...]
    is_partial: bool


@dataclass(frozen=True, slots=True)
class SampleDocument:
    """A document beside its summary; `text` is its beginning, the whole of it unless `is_cut`."""

    custom_id: str
    text: str
    is_cut: bool
    summary: str
