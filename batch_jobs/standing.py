"""Whether work may still be begun for a job's key: asked before each step of reading its input.

What ends a job goes on whatever became of the key. Called by what tending has read.
"""

from django.db.models.functions import Now

from batch_jobs.contracts import LineError
from batch_jobs.job_leases import LeasedJob, locked
from batch_jobs.models import JobState
from tenants.contracts import KeyRefusal
from tenants.facade import key_refusal

FOR_KEY = "key"
"""Why a job is paused."""
UNREAD = "unread"
"""In the cursor of a job that was paused while it was read: where it goes on."""
_MESSAGES = {
    KeyRefusal.KEY_REVOKED: "The API key of this job was revoked or has expired.",
    KeyRefusal.PROJECT_ARCHIVED: "The project of this job is archived.",
    KeyRefusal.ORGANIZATION_SUSPENDED: "The organization of this job is suspended.",
}


def key_error(job: LeasedJob) -> LineError | None:
    """Why nothing more may be read for the job; None if it may."""
    refusal = key_refusal(job.organization_id, job.project_id, job.key_id)
    return None if refusal is None else LineError(refusal.value, _MESSAGES[refusal])


def paused_for_key(job: LeasedJob) -> bool:
    """Pauses a job that is read for a key which may not go on; whether it did. Raises LeaseLost."""
    if key_error(job) is None:
        return False
    with locked(job) as row:
        row.state, row.pause_reason, row.paused_at = JobState.PAUSED, FOR_KEY, Now()
        row.cursor = {UNREAD: row.cursor}
        row.save(update_fields=["state", "pause_reason", "paused_at", "cursor"])
    return True
