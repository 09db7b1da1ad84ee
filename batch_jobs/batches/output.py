"""The end of a batch: its output and error files, each line in exactly one of them.

Both are written from the items' rows, a page at a time, before one transaction publishes them and
closes the job; killed at any instant, it is simply done again. Done lines are in the output
whatever became of the others. Called by tending.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from batch_jobs.ending import end_items, is_ending
from batch_jobs.events import public_id, tell
from batch_jobs.job_files import publish_file, stage_file
from batch_jobs.job_leases import HOUSEKEEPER_ALIAS, LeasedJob, LeaseKeeper, job_row, locked
from batch_jobs.models import BulkItem, BulkJob, ItemState, JobState
from batch_jobs.pages import by_index

PAGE_ITEMS = 500
READ = (
    *("custom_id", "state", "status_code", "request_id"),
    *("answer", "error_code", "error_message"),
)
"""Of an item's columns."""
ANSWERED_WELL = Q(state=ItemState.DONE)
ANSWERED_ILL = Q(state__in=[ItemState.FAILED, ItemState.CANCELLED, ItemState.EXPIRED])


def finish(job: LeasedJob, now: datetime) -> bool:
    """Writes the files and closes the job, once nothing of it runs any more."""
    row = job_row(job)
    if is_ending(row) and not end_items(job, now):
        return False
    name = public_id(job.kind, job.job_id)
    written = Counter[str]()
    output = stage_file(job, f"{name}_output.jsonl", _lines(job, ANSWERED_WELL, written), now)
    errors = stage_file(job, f"{name}_error.jsonl", _lines(job, ANSWERED_ILL, written), now)
    assert written.total() == row.items_total, "each line has ended, and is in one of the files"
    with locked(job) as row:
        row.output_file_id = publish_file(row, output, now)
        row.error_file_id = publish_file(row, errors, now)
        row.state = _end_of(row)
        setattr(row, f"{row.state}_at", Now())
        row.save(update_fields=["output_file", "error_file", "state", f"{row.state}_at"])
        tell(row, row.state, now)
    return True


def _end_of(row: BulkJob) -> JobState:
    if row.cancelling_at is not None:
        return JobState.CANCELLED
    return JobState.COMPLETED if row.expired_at is None else JobState.EXPIRED


def _lines(job: LeasedJob, which: Q, written: Counter[str]) -> Iterator[bytes]:
    keep = LeaseKeeper(job)
    items = (
        BulkItem.objects.using(HOUSEKEEPER_ALIAS)
        .filter(which, organization_id=job.organization_id, job_id=job.job_id)
        .only(*READ)
        .order_by("id")
    )
    page = _page(items)
    while page:
        keep()
        written.update(item.state for item in page)
        yield b"".join(map(output_line, page))
        page = _page(items.filter(id__gt=page[-1].id))


def _page(items: QuerySet[BulkItem]) -> list[BulkItem]:
    with by_index():
        return list(items[:PAGE_ITEMS])


def output_line(item: BulkItem) -> bytes:
    """A line of the output or error file, with its end."""
    request_id = None if item.request_id is None else item.request_id.hex
    line: dict[str, Any] = {
        "id": f"batch_req_{request_id or f'{item.id:032x}'}",
        "custom_id": item.custom_id,
        "response": None,
        "error": None,
    }
    if item.state == ItemState.DONE:
        assert item.answer is not None, "a done line has its answer"
        line["response"] = {
            "status_code": item.status_code or 200,
            "request_id": request_id,
            # As the endpoint wrote it; a line break between its tokens would end the line.
            "body": msgspec.Raw(item.answer.encode().replace(b"\n", b" ")),
        }
    elif item.state == ItemState.FAILED and item.status_code:
        line["response"] = {
            "status_code": item.status_code,
            "request_id": request_id,
            "body": {
                "error": {
                    "message": item.error_message,
                    "type": "invalid_request_error" if item.status_code < 500 else "server_error",
                    "param": None,
                    "code": item.error_code,
                }
            },
        }
    else:
        line["error"] = {"code": item.error_code, "message": item.error_message}
    return msgspec.json.encode(line) + b"\n"
