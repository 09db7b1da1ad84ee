"""A job's inputs as it reads them: where it is in them, its pages, and the names in a page.

Nothing here writes. Called by ingestion.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from uuid import UUID

from django.conf import settings

from batch_jobs.contracts import FileMissing
from batch_jobs.files.reading import open_file
from batch_jobs.job_leases import HOUSEKEEPER_ALIAS, LeasedJob
from batch_jobs.models import StoredFile
from batch_jobs.stopping import goes_on_until
from batch_jobs.summaries.drafting import Named
from batch_jobs.summaries.estimating import Measured
from batch_jobs.summaries.extraction import ChildExtractor, ExtractionLimits
from batch_jobs.summaries.options import SummaryOptions, digest
from batch_jobs.summaries.sources.documents import (
    Cursor,
    Document,
    Extractor,
    Input,
    InputLimits,
    InputUnreadable,
    failed,
)
from batch_jobs.summaries.sources.opening import read_documents
from batch_jobs.summaries.staging import taken_ids

PLACE_CHARS_MAX = 300
"""Of a file's name, where a document is named by its place in it."""


@dataclass(slots=True)
class ReadingState:
    """How far the reading of a job has come, as its cursor keeps it."""

    input_number: int = 0
    at: Cursor = field(default_factory=dict)
    """Where reading goes on in that input."""
    documents: int = 0
    tries: int = 0
    """How often a reader began since the last page and did not come to an end of any kind."""
    errors: list[dict[str, Any]] = field(default_factory=list)
    """Why the job fails, while what was read of it is deleted."""
    measured: Measured = field(default_factory=Measured)

    @classmethod
    def from_json(cls, cursor: dict[str, Any]) -> "ReadingState":
        """What `to_json` made; the beginning, of an empty cursor."""
        fields = dict(cursor)
        return cls(**fields | {"measured": Measured(**fields.get("measured", {}))})

    def to_json(self) -> dict[str, Any]:  # JSON
        """As `bulk_job.cursor` keeps it."""
        return asdict(self)


def open_input(
    job: LeasedJob, file_id: UUID, options: SummaryOptions, extractor: Extractor
) -> Input:
    """An input file, open; raises InputUnreadable when it is gone. The caller closes its stream."""
    row = (
        StoredFile.objects.using(HOUSEKEEPER_ALIAS)
        .filter(organization_id=job.organization_id, project_id=job.project_id, id=file_id)
        .first()
    )
    if row is None:
        raise InputUnreadable("file_not_found", f"No such File object: file-{file_id.hex}")
    try:
        stream = open_file(job.organization_id, file_id)
    except FileMissing as error:
        raise InputUnreadable("file_not_found", str(error)) from error
    limits = InputLimits(
        document_bytes_max=settings.SUMMARY_DOCUMENT_BYTES_MAX,
        raw_bytes_max=settings.SUMMARY_RAW_BYTES_MAX,
        documents_max=settings.SUMMARY_DOCUMENTS_MAX,
        zip_entries_max=settings.SUMMARY_ZIP_ENTRIES_MAX,
        zip_bytes_max=settings.SUMMARY_ZIP_BYTES_MAX,
        zip_ratio_max=settings.SUMMARY_ZIP_RATIO_MAX,
        child_memory_bytes_max=settings.SUMMARY_EXTRACT_MEMORY_BYTES_MAX,
        child_cpu_s=settings.SUMMARY_EXTRACT_S,
    )
    return Input(row.filename, stream, limits, extractor, options.id_field, options.text_field)


def new_extractor() -> ChildExtractor:
    """What takes text out of HTML and PDF, within this house's limits."""
    return ChildExtractor(
        ExtractionLimits(
            memory_bytes_max=settings.SUMMARY_EXTRACT_MEMORY_BYTES_MAX,
            cpu_s=settings.SUMMARY_EXTRACT_S,
            wall_s=1.5 * settings.SUMMARY_EXTRACT_S,
            text_bytes_max=settings.SUMMARY_DOCUMENT_BYTES_MAX,
            pages_max=settings.SUMMARY_EXTRACT_PAGES_MAX,
            documents_max=settings.SUMMARY_EXTRACT_DOCUMENTS_MAX,
        )
    )


@dataclass(frozen=True, slots=True)
class Page:
    """Documents that are stored together, if any, and where reading goes on after them."""

    documents: list[Document]
    cursor: Cursor


def read_pages(source: Input, at: Cursor) -> Iterator[Page]:
    """The documents of an input from `at`, in pages that bound memory and the time between two."""
    page: list[Document] = []
    page_bytes, ends_at = 0, time.monotonic() + settings.SUMMARY_PAGE_S
    for found in read_documents(source, at):
        if isinstance(found, Document):
            page.append(found)
            page_bytes += len(found.text) + len(found.error_message) + len(found.name or "")
        if (
            len(page) == settings.SUMMARY_PAGE_DOCUMENTS
            or page_bytes >= settings.SUMMARY_PAGE_BYTES_MAX
            or not goes_on_until(ends_at)
        ):
            yield Page(page, found.cursor)
            page, page_bytes, ends_at = [], 0, time.monotonic() + settings.SUMMARY_PAGE_S
    if page:
        yield Page(page, page[-1].cursor)


def name_documents(
    job: LeasedJob,
    documents: Sequence[Document],
    filename: str,
    first_number: int,
    options: SummaryOptions,
) -> list[Named]:
    """The documents under ids that nothing else in the job has, with their digests.

    One without an id is called by its place. One whose id was used before fails, under that id
    with its own number in the job behind it: which of the two is meant nobody can say, and a result
    under an id that its owner never gave would be found by nobody.
    """
    wanted = [
        document.name or f"{filename[:PLACE_CHARS_MAX]}:{document.line}" for document in documents
    ]
    taken = taken_ids(job, wanted)
    named: list[Named] = []
    repeated: dict[int, str] = {}
    for number, (document, custom_id) in enumerate(zip(documents, wanted, strict=True)):
        if custom_id in taken:
            repeated[number] = f"{custom_id}#{first_number + number}"
            message = f"line {document.line} of {filename} has the id {custom_id!r} once more"
            refused = failed(None, document.line, document.cursor, "duplicate_id", message)
            named.append(Named(refused, custom_id, None))
            continue
        taken.add(custom_id)
        key = None if document.error_code is not None else digest(options, document.text)
        named.append(Named(document, custom_id, key))
    while repeated:
        taken |= taken_ids(job, list(repeated.values()))
        again: dict[int, str] = {}
        for number, custom_id in repeated.items():
            if custom_id in taken:
                again[number] = f"{custom_id}#{first_number + number}"
            else:
                taken.add(custom_id)
                named[number] = replace(named[number], custom_id=custom_id)
        repeated = again
    return named
