"""From claimed items to requests: their texts are read and put into the bodies that are asked.

A batch's line is its request; a summary's text is a document, a part of one, or what the parts'
summaries make together. Reads files and rows, so it blocks: the pump calls it on a thread.
"""

import functools
import logging
from collections.abc import Sequence
from uuid import UUID

import msgspec

from batch_jobs.batches.lines import body_of
from batch_jobs.contracts import FileMissing, StorageAway
from batch_jobs.files.reading import Span, read_spans
from batch_jobs.models import BulkItem, JobKind, SummaryPlan
from batch_jobs.ports import BulkRequest
from batch_jobs.pump.claiming import ClaimedItem
from batch_jobs.pump.transitions import Attempt, Ended, Returned
from batch_jobs.pump.verdicts import failed
from batch_jobs.summaries.asking import request_body
from batch_jobs.summaries.options import SummaryOptions, parse_options
from tenants.facade import tenant_scope

JOBS_REMEMBERED_MAX = 256
PARTS_JOINED_BY = "\n\n"
STORAGE_WAIT_S = 10.0
"""How long an item waits whose text could not be read just now."""

logger = logging.getLogger(__name__)


def prepare(items: Sequence[ClaimedItem]) -> list[BulkRequest | Ended | Returned]:
    """For each item its request, or why there is none: its text is gone, or storage is away."""
    texts = _texts(items)
    return [
        text if isinstance(text, Ended | Returned) else _request(item, text)
        for item, text in zip(items, texts, strict=True)
    ]


def _texts(items: Sequence[ClaimedItem]) -> list[bytes | Ended | Returned]:
    own = [item for item in items if not item.parts and item.source_id is not None]
    found: dict[int, bytes | Ended | Returned] = {}
    try:
        found = dict(zip((item.item_id for item in own), read_spans(_spans(own)), strict=True))
    except (FileMissing, StorageAway):
        found = {item.item_id: _text(item) for item in own}
    return [found[item.item_id] if item.item_id in found else _merged(item) for item in items]


def _text(item: ClaimedItem) -> bytes | Ended | Returned:
    try:
        return read_spans(_spans([item]))[0]
    except FileMissing as error:
        return failed(item, 400, "input_file_missing", str(error))
    except StorageAway:
        logger.exception("item %d could not be read", item.item_id)
        return Returned(item, Attempt.NOT_MADE, STORAGE_WAIT_S)


def _spans(items: Sequence[ClaimedItem]) -> list[Span]:
    return [
        Span(item.organization_id, item.source_id, item.source_offset, item.source_bytes)
        for item in items
        if item.source_id is not None
    ]


def _merged(item: ClaimedItem) -> bytes | Ended:
    """The summaries of its parts; an item that has neither parts nor a text cannot be computed."""
    if not item.parts:
        return failed(item, 400, "input_file_missing", "There is no text of this item.")
    with tenant_scope(item.organization_id):
        answers = list(
            BulkItem.objects.filter(job_id=item.job_id, parent_id=item.item_id)
            .order_by("part")
            .values_list("answer", flat=True)
        )
    return PARTS_JOINED_BY.join(answer or "" for answer in answers).encode()


def _request(item: ClaimedItem, text: bytes) -> BulkRequest | Ended:
    try:
        if item.kind == JobKind.SUMMARY:
            options = _options(item.organization_id, item.job_id)
            body = request_body(options, text.decode(), item.parts)
        else:
            body = body_of(text)
    except (msgspec.DecodeError, UnicodeDecodeError, SummaryPlan.DoesNotExist) as error:
        return failed(item, 400, "invalid_input", f"The text cannot be read: {error}.")
    return BulkRequest(
        request_id=item.request_id,
        organization_id=item.organization_id,
        project_id=item.project_id,
        key_id=item.key_id,
        endpoint=item.endpoint,
        body=body,
        bound_pico=item.bound_pico,
    )


@functools.lru_cache(maxsize=JOBS_REMEMBERED_MAX)
def _options(organization_id: UUID, job_id: UUID) -> SummaryOptions:
    """Of a summarisation job: they never change once it can be claimed."""
    with tenant_scope(organization_id):
        options = SummaryPlan.objects.values_list("options", flat=True).get(job_id=job_id)
    return parse_options(options)
