"""The door to `batch_jobs`: everything other packages may call, beside its contracts and ports.

The headrace rooms call it with a tenant that they have authenticated; the gateway asks `forfeit`
before it settles a finish that nobody waits for.
"""

from batch_jobs.erasure import forget_jobs
from batch_jobs.invariants import INVARIANTS
from batch_jobs.jobs import create_summary_job, read_items, read_job
from batch_jobs.leases import forfeit

__all__ = ["INVARIANTS", "create_summary_job", "forfeit", "forget_jobs", "read_items", "read_job"]
