"""The end of a summarisation job, and the end of its results.

Called by tending. A job's totals stay for ever; its documents' rows and staged texts go when their
owner deletes them, or when they were kept for long enough.
"""

from datetime import datetime

from batch_jobs.job_leases import LeasedJob


def finish(job: LeasedJob, now: datetime) -> bool:
    """Closes a finalizing job as what it was to become, and tells its owner."""
    raise NotImplementedError


def forget_results(now: datetime) -> bool:
    """Deletes a page of what nobody may read any more; True when there is more."""
    raise NotImplementedError
