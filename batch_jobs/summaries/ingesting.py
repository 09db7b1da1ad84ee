"""Reads the documents of a summarisation job, page by page, into items that a pump can claim.

A page's items and how far reading has come are one transaction: killed at any instant, the next
slice repeats at most one page and nothing twice. Nothing of a job that fails here is ever charged.
Called by tending until everything is read.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime

import psycopg
from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.db.models import F
from django.db.models.functions import Now

from batch_jobs.caps import check_tokens
from batch_jobs.contracts import LineError, StorageAway, StorageFull, TooMuchEnqueued
from batch_jobs.events import tell
from batch_jobs.job_leases import (
    HOUSEKEEPER_ALIAS,
    LeasedJob,
    LeaseKeeper,
    LeaseLost,
    StepStopped,
    job_row,
    locked,
)
from batch_jobs.models import BulkJob, JobState, SummaryPlan
from batch_jobs.ports import ModelTerms, pipeline_port
from batch_jobs.standing import paused_for_key
from batch_jobs.summaries import staging
from batch_jobs.summaries.drafting import PageDraft, draft_page
from batch_jobs.summaries.estimating import estimate, prompt_tokens_least
from batch_jobs.summaries.fitting import Fitter
from batch_jobs.summaries.options import SummaryOptions, parse_options
from batch_jobs.summaries.reading import (
    Page,
    ReadingState,
    name_documents,
    new_extractor,
    open_input,
    read_pages,
)
from batch_jobs.summaries.sources.documents import Document, Extractor, InputUnreadable
from batch_jobs.waking import wake_pump_later, wake_tending_later

INPUT = "input_file_ids"
DELETED_ITEMS_PAGE = 5000
OURS = (OperationalError, InterfaceError, psycopg.OperationalError, StorageAway)
"""Database or storage away, which says nothing about the input."""


class _Hopeless(Exception):
    """The job cannot be run; `errors` say why."""

    def __init__(self, *errors: LineError) -> None:
        super().__init__(errors)
        self.errors = errors


def ingest_some(job: LeasedJob, now: datetime) -> bool:
    """Reads a slice of a validating job; True when there is more to do at once.

    It ends ready, in progress, finalizing (nothing is left to compute), failed, or paused for its
    key. Raises LeaseLost, StepStopped.
    """
    state = ReadingState.from_json(job_row(job).cursor)
    if state.errors:
        return _clear(job, state, now)
    if paused_for_key(job):
        return False
    try:
        _begin(job, state)
        try:
            is_more = _Ingestion(job, state, now).read()
        except (*OURS, LeaseLost, StepStopped, _Hopeless):
            _end_try(job)
            raise
        else:
            # Not reached where the reader is killed or breaks: that is what tries count.
            _end_try(job)
            return is_more
    except _Hopeless as hopeless:
        state.errors = [asdict(error) for error in hopeless.errors]
        _save_state(job, state)
        return _clear(job, state, now)


class _Ingestion:
    """One slice of reading, under a lease."""

    def __init__(self, job: LeasedJob, state: ReadingState, now: datetime) -> None:
        self._job, self._state, self._now = job, state, now
        self._keep_lease = LeaseKeeper(job)
        plan = self._plan()
        self._file_ids = plan.input_file_ids
        self._port = pipeline_port()
        asked = parse_options(plan.options)
        self._terms = self._terms_of(asked)
        # An alias may stand for another model tomorrow: then its summaries are others.
        self._options = replace(asked, model=self._terms.public_id)
        self._asked = asked
        self._fitter = Fitter(asked, self._terms, self._port, settings.SUMMARY_PARTS_MAX)
        self._ends_at: float | None = None

    def read(self) -> bool:
        """Reads until the slice is over; True when there is more."""
        with new_extractor() as extractor:
            while self._state.input_number < len(self._file_ids):
                if not self._read_input(extractor):
                    return True
                self._state.input_number += 1
                self._state.at = {}
        self._start()
        return False

    def _plan(self) -> SummaryPlan:
        return SummaryPlan.objects.using(HOUSEKEEPER_ALIAS).get(
            job_id=self._job.job_id, organization_id=self._job.organization_id
        )

    def _terms_of(self, options: SummaryOptions) -> ModelTerms:
        terms = self._port.terms(self._job.organization_id, self._job.project_id, options.model)
        if terms is None:
            message = f"The model {options.model!r} is not for sale to this project any more."
            raise _Hopeless(LineError("model_not_found", message, None, "model"))
        if options.tokens_max > terms.output_tokens_max:
            message = f"tokens_max: {terms.public_id} answers at most {terms.output_tokens_max}"
            raise _Hopeless(LineError("invalid_tokens_max", message, None, "tokens_max"))
        return terms

    def _read_input(self, extractor: Extractor) -> bool:
        """Reads on in the current input; False when time was up before its end."""
        filename = None
        try:
            source = open_input(
                self._job, self._file_ids[self._state.input_number], self._asked, extractor
            )
            filename = source.filename
            with source.stream:
                for page in read_pages(source, self._state.at):
                    self._check(page.documents, filename)
                    self._store(page, filename)
                    self._keep_lease()
                    if self._is_over():
                        return False
        except InputUnreadable as error:
            message = str(error) if filename is None else f"{filename}: {error}"
            raise _Hopeless(LineError(error.code, message, error.line, INPUT)) from error
        return True

    def _is_over(self) -> bool:
        # From the first page on: what comes before may be the way to where the last slice ended.
        if self._ends_at is None:
            self._ends_at = time.monotonic() + settings.SUMMARY_READ_S
        return time.monotonic() >= self._ends_at

    def _check(self, documents: Sequence[Document], filename: str) -> None:
        if self._state.documents + len(documents) > settings.SUMMARY_DOCUMENTS_MAX:
            message = f"there are more than {settings.SUMMARY_DOCUMENTS_MAX} documents"
            raise InputUnreadable("too_many_documents", message)
        bad = [each for each in documents if each.error_code is not None]
        bad_max = settings.SUMMARY_BAD_ROWS_MAX
        if not self._state.at and len(bad) == len(documents) >= bad_max:
            raise _Hopeless(
                *(
                    LineError(
                        each.error_code or "", f"{filename}: {each.error_message}", each.line, INPUT
                    )
                    for each in bad[:bad_max]
                )
            )

    def _store(self, found: Page, filename: str) -> None:
        """One page: its texts, then its items and how far we are, in one transaction."""
        job, state, documents = self._job, self._state, found.documents
        named = name_documents(job, documents, filename, state.documents + 1, self._options)
        digests = list({each.digest for each in named if each.digest is not None})
        page = draft_page(named, staging.find_twins(job, digests), self._fitter)
        shard_id = staging.stage_texts(job, page.texts, self._now)
        state.measured.add(page, self._port.count_tokens)
        state.at = found.cursor
        state.documents += len(documents)
        state.tries = 0
        try:
            with locked(job) as row:
                if shard_id is not None:
                    staging.keep_shard(job, shard_id)
                staging.insert_rows(job, page.rows, state.input_number, shard_id, self._now)
                staging.count_copies(job, page.copies)
                self._count(row, page, len(documents))
                self._check_caps(prompt_tokens_least(state.measured, self._fitter))
                if shard_id is not None:
                    staging.check_room(job)
        except (StorageFull, TooMuchEnqueued) as error:
            raise _Hopeless(LineError(error.code, str(error), None, INPUT)) from error

    def _check_caps(self, prompt_tokens: int) -> None:
        check_tokens(
            self._job.organization_id,
            self._job.job_id,
            self._asked.model,
            prompt_tokens,
            HOUSEKEEPER_ALIAS,
        )

    def _count(self, row: BulkJob, page: PageDraft, documents: int) -> None:
        row.cursor = self._state.to_json()
        row.items_total += documents
        row.items_completed += page.completed
        row.items_failed += page.failed
        row.save(update_fields=["cursor", "items_total", "items_completed", "items_failed"])
        SummaryPlan.objects.using(HOUSEKEEPER_ALIAS).filter(
            job_id=row.id, organization_id=row.organization_id
        ).update(
            bytes_read=F("bytes_read") + page.bytes_read,
            documents_duplicate=F("documents_duplicate") + page.duplicate,
            documents_known=F("documents_known") + page.known,
        )

    def _start(self) -> None:
        """Everything is read: the job runs, waits to be started, or is done already."""
        job = self._job
        if not self._state.documents:
            raise _Hopeless(LineError("empty_input", "The input has no documents.", None, INPUT))
        expected = estimate(job, self._asked, self._state.measured, self._fitter, self._terms)
        try:
            with locked(job) as row:
                self._check_caps(expected.prompt_tokens)
                plan = self._plan()
                plan.estimate = expected.to_json()
                plan.save(update_fields=["estimate"])
                row.enqueued_tokens = expected.prompt_tokens
                row.cursor = {}
                if row.items_completed + row.items_failed == row.items_total:
                    row.state = JobState.FINALIZING
                    row.in_progress_at = row.finalizing_at = Now()
                elif plan.starts_itself:
                    row.state = JobState.IN_PROGRESS
                    row.in_progress_at = Now()
                else:
                    row.state = JobState.READY
                row.save(
                    update_fields=[
                        *("enqueued_tokens", "cursor", "state"),
                        *("in_progress_at", "finalizing_at"),
                    ]
                )
                wake_pump_later(HOUSEKEEPER_ALIAS)
                wake_tending_later(HOUSEKEEPER_ALIAS)
        except TooMuchEnqueued as error:
            raise _Hopeless(LineError(error.code, str(error), None, INPUT)) from error


def _begin(job: LeasedJob, state: ReadingState) -> None:
    """Counts the try; the job is given up when too many ended in silence."""
    if state.tries >= settings.SUMMARY_READ_TRIES_MAX:
        message = "Reading the input ended its reader again and again."
        raise _Hopeless(LineError("unreadable_input", message, None, INPUT))
    state.tries += 1
    _save_state(job, state)


def _end_try(job: LeasedJob) -> None:
    with suppress(LeaseLost), locked(job) as row:
        if "tries" in row.cursor:
            row.cursor["tries"] = 0
            row.save(update_fields=["cursor"])


def _save_state(job: LeasedJob, state: ReadingState) -> None:
    with locked(job) as row:
        row.cursor = state.to_json()
        row.save(update_fields=["cursor"])


def _clear(job: LeasedJob, state: ReadingState, now: datetime) -> bool:
    """Deletes what was read of a job that cannot be run, then fails it; True when there is more."""
    keep_lease = LeaseKeeper(job)
    ends_at = time.monotonic() + settings.SUMMARY_READ_S
    while time.monotonic() < ends_at:
        keep_lease()
        with locked(job) as row:
            if staging.delete_items(job, DELETED_ITEMS_PAGE) == DELETED_ITEMS_PAGE:
                continue
            staging.discard_shards(job.organization_id, job.job_id)
            row.state = JobState.FAILED
            row.failed_at = Now()
            row.errors = state.errors
            row.cursor = {}
            row.items_total = row.items_completed = row.items_failed = 0
            row.save(
                update_fields=[
                    *("state", "failed_at", "errors", "cursor"),
                    *("items_total", "items_completed", "items_failed"),
                ]
            )
            tell(row, "failed", now)
            return False
    return True
