"""What tenants are told of their jobs: the kinds of events, and the telling of an end.

An event is part of the transaction that changes the job's state, so it is told once. It holds ids
and amounts, never a line of the job. Called by whoever ends a job.
"""

from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings

from batch_jobs.job_leases import HOUSEKEEPER_ALIAS
from batch_jobs.models import BulkJob, JobKind
from tenants.contracts import Permission
from tenants.facade import emit, register_event_kind

ID_PREFIXES = {JobKind.BATCH: "batch_", JobKind.SUMMARY: "summary_"}

_KINDS = {
    "batch.completed": "A batch is completed.",
    "batch.failed": "A batch was not started: for its input, its key, or too much enqueued.",
    "batch.expired": "A batch's time was over before all of its lines were computed.",
    "batch.cancelled": "A batch was cancelled.",
    "summary.completed": "A summarisation job is completed.",
    "summary.failed": "A summarisation job was not started: its input cannot be read.",
    "summary.cancelled": "A summarisation job was cancelled.",
    "summary.expired": "A summarisation job's time was over before all was summarised.",
    "summary.paused": "A summarisation job was paused.",
    "summary.deadline_at_risk": "A summarisation job may not be done by its deadline.",
}


def register_kinds() -> None:
    """Makes the kinds known; called by the wiring, in every process."""
    for name, description in _KINDS.items():
        register_event_kind(name, description, Permission.BILLING_READ)


def public_id(kind: str, job_id: UUID) -> str:
    """A job's id as its owner sees it."""
    return f"{ID_PREFIXES[JobKind(kind)]}{job_id.hex}"


def tell(row: BulkJob, what: str, now: datetime, using: str = HOUSEKEEPER_ALIAS) -> None:
    """Records the event `what` (completed, failed, ...) of a job, in the open transaction.

    Mailed only for a job that took so long that nobody sat and waited for it.
    """
    waited = now - row.created_at > timedelta(seconds=settings.BATCH_MAILED_AFTER_S)
    emit(
        row.organization_id,
        f"{row.kind}.{what}",
        {
            "id": public_id(row.kind, row.id),
            "request_counts": {
                "total": row.items_total,
                "completed": row.items_completed,
                "failed": row.items_failed,
            },
            "charge_pico": str(row.charge_pico),
            "mailed": waited,
        },
        using=using,
    )
