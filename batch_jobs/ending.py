"""The ends that a job's owner or its time brings: what was not computed is cancelled or expired."""

from datetime import datetime

from batch_jobs.job_leases import LeasedJob


def end_items(job: LeasedJob, now: datetime) -> bool:
    """Ends a page of the items of a job that is cancelled or whose time is over."""
    raise NotImplementedError
