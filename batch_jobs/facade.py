"""The door to `batch_jobs`: everything other packages may call, beside its contracts and ports.

The headrace rooms call it with a tenant that they have authenticated; the gateway asks `forfeit`
before it settles a finish that nobody waits for.
"""

from batch_jobs.batches.jobs import cancel_batch, create_batch, list_batches, read_batch
from batch_jobs.browsing import failures_of, find_job, list_jobs, sample_documents
from batch_jobs.erasure import forget_jobs
from batch_jobs.events import register_kinds as register_bulk_events
from batch_jobs.files.listing import (
    delete_file,
    list_files,
    open_content,
    read_content,
    read_file,
)
from batch_jobs.files.storage import temporary_file
from batch_jobs.files.uploads import check_room, store_upload
from batch_jobs.invariants import INVARIANTS
from batch_jobs.pump.transitions import forfeit
from batch_jobs.summaries.jobs import (
    SummaryOrder,
    create_summary,
    list_summaries,
    read_summary,
)
from batch_jobs.summaries.results import read_results, row_of, shard_rows
from batch_jobs.summaries.steering import (
    NewBounds,
    cancel_summary,
    change_bounds,
    delete_results,
    pause_summary,
    preview_summary,
    resume_summary,
    retry_summary,
    start_summary,
)

__all__ = [
    "INVARIANTS",
    "NewBounds",
    "SummaryOrder",
    "cancel_batch",
    "cancel_summary",
    "change_bounds",
    "check_room",
    "create_batch",
    "create_summary",
    "delete_file",
    "delete_results",
    "failures_of",
    "find_job",
    "forfeit",
    "forget_jobs",
    "list_batches",
    "list_files",
    "list_jobs",
    "list_summaries",
    "open_content",
    "pause_summary",
    "preview_summary",
    "read_batch",
    "read_content",
    "read_file",
    "read_results",
    "read_summary",
    "register_bulk_events",
    "resume_summary",
    "retry_summary",
    "row_of",
    "sample_documents",
    "shard_rows",
    "start_summary",
    "store_upload",
    "temporary_file",
]
