"""Reading a batch's input: every line is checked before the first one runs.

A file with a bad line fails as a whole, and nothing of it is ever charged. The lines' items appear
in one transaction with the batch's start, so that a validation killed at any instant leaves nothing
behind. Memory stays flat: what is found goes to temporary files. Called by tending.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import BinaryIO

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from batch_jobs.batches.drafts import Draft, empty_draft
from batch_jobs.batches.estimate import TokenEstimate
from batch_jobs.batches.lines import LineChecker, LineInvalid
from batch_jobs.caps import check_tokens
from batch_jobs.contracts import FileMissing, LineError, TooMuchEnqueued
from batch_jobs.events import public_id, tell
from batch_jobs.files.reading import open_file
from batch_jobs.job_files import publish_file, stage_file
from batch_jobs.job_leases import (
    HOUSEKEEPER_ALIAS,
    LeasedJob,
    LeaseKeeper,
    job_row,
    locked,
    renew,
)
from batch_jobs.models import BulkJob, JobState
from batch_jobs.ports import pipeline_port
from batch_jobs.standing import key_error
from batch_jobs.waking import wake_pump_later

INPUT = "input_file_id"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LIST_LINES = 1000
"""Between two of them the lease is kept and the job's key asked about."""
SKIPPED_BYTES = 1024 * 1024


def validate(job: LeasedJob, now: datetime) -> bool:
    """Reads the whole input; the batch is in progress or failed afterwards, also for its key.

    Raises LeaseLost, StepStopped.
    """
    row = job_row(job)
    with empty_draft() as draft:
        _read(job, row, draft)
        if not draft.errors_total:
            try:
                _start(job, draft)
            except TooMuchEnqueued as error:
                draft.add_error(LineError(error.code, str(error)))
        if draft.errors_total:
            _fail(job, draft, now)
    return True


def _read(job: LeasedJob, row: BulkJob, draft: Draft) -> None:
    port, keep = pipeline_port(), LeaseKeeper(job)
    estimate = TokenEstimate()
    checker = LineChecker(
        row.endpoint,
        lambda model: port.terms(job.organization_id, job.project_id, model) is not None,
    )
    places: dict[int, int] = {}
    lines_total = 0
    assert row.input_file_id is not None, "a batch has an input"
    try:
        source = open_file(job.organization_id, row.input_file_id)
    except FileMissing:
        draft.add_error(LineError("file_not_found", "The input file is gone.", None, INPUT))
        return
    with source:
        for number, offset, line in numbered_lines(source, settings.BATCH_LINE_BYTES_MAX):
            lines_total += 1
            if lines_total > settings.BATCH_LINES_MAX:
                draft.add_error(_too_many())
                return
            if lines_total % LIST_LINES == 1:
                keep()
                if (refused := key_error(job)) is not None:
                    draft.add_error(refused)
                    return
            try:
                if line is None:
                    raise _too_long()
                checked = checker.check(line)
            except LineInvalid as error:
                draft.add_error(LineError(error.code, error.message, number, error.param))
                continue
            if draft.errors_total:
                continue
            estimate.add(checked.body, len(line))
            rank = places.setdefault(checked.prefix, len(places))
            draft.add_row(number, checked.custom_id, rank << 32 | number, offset, len(line))
    if not lines_total:
        draft.add_error(LineError("empty_file", "The input file is empty.", None, INPUT))
    draft.model = checker.model
    draft.tokens = estimate.tokens(port.count_tokens) if not draft.errors_total else 0


def numbered_lines(source: BinaryIO, bytes_max: int) -> Iterator[tuple[int, int, bytes | None]]:
    """Number (from 1), offset and bytes of each line that is not blank, without its end.

    None for one of more than `bytes_max`, which is skipped without being held.
    """
    offset = number = 0
    while line := source.readline(bytes_max + 2):
        number += 1
        start, offset = offset, offset + len(line)
        if number == 1 and line.startswith(BYTE_ORDER_MARK):
            start, line = len(BYTE_ORDER_MARK), line[len(BYTE_ORDER_MARK) :]
        if len(line.rstrip(b"\r\n")) > bytes_max:
            while not line.endswith(b"\n") and (line := source.readline(SKIPPED_BYTES)):
                offset += len(line)
            yield number, start, None
            continue
        line = line.rstrip(b"\r\n")
        if line and not line.isspace():
            yield number, start, line


def _start(job: LeasedJob, draft: Draft) -> None:
    """The batch runs from here on: its items and its new state are one transaction."""
    renew(job, settings.BATCH_TEND_LEASE_S)
    with transaction.atomic(using=HOUSEKEEPER_ALIAS):
        draft.copy_items(job, job_row(job))
        # Only now, and for a moment: whoever cancels must not wait for the copy.
        with locked(job) as row:
            check_tokens(
                job.organization_id, job.job_id, draft.model, draft.tokens, HOUSEKEEPER_ALIAS
            )
            row.state = JobState.IN_PROGRESS
            row.model = draft.model
            row.items_total = draft.rows_total
            row.enqueued_tokens = draft.tokens
            row.in_progress_at = Now()
            row.save(
                update_fields=[
                    "state",
                    "model",
                    "items_total",
                    "enqueued_tokens",
                    "in_progress_at",
                ]
            )
        wake_pump_later(HOUSEKEEPER_ALIAS)


def _fail(job: LeasedJob, draft: Draft, now: datetime) -> None:
    report = None
    if draft.errors_total > settings.BATCH_ERRORS_SHOWN_MAX:
        filename = f"{public_id(job.kind, job.job_id)}_errors.jsonl"
        report = stage_file(job, filename, draft.error_lines(), now)
    with locked(job) as row:
        row.state = JobState.FAILED
        row.failed_at = Now()
        row.errors = draft.errors_shown
        row.error_file_id = publish_file(row, report, now)
        row.save(update_fields=["state", "failed_at", "errors", "error_file"])
        tell(row, "failed", now)


def _too_many() -> LineError:
    return LineError(
        "too_many_tasks",
        f"The batch input file contains more than the {settings.BATCH_LINES_MAX:,} requests that"
        " a batch may have. Please try again with a smaller batch.",
        None,
        INPUT,
    )


def _too_long() -> LineInvalid:
    return LineInvalid(
        "line_too_long", f"This line is longer than {settings.BATCH_LINE_BYTES_MAX:,} bytes."
    )
