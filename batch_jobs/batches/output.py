"""The end of a batch: its output and error files, each line in exactly one of them."""

from datetime import datetime

from batch_jobs.job_leases import LeasedJob


def finish(job: LeasedJob, now: datetime) -> bool:
    """Writes the files and closes the job."""
    raise NotImplementedError
