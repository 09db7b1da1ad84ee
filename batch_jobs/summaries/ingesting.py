"""Reads the documents of a summarisation job, page by page, into items that a pump can claim.

A page's items and how far reading has come are one transaction: killed at any instant, the next
slice repeats at most one page and nothing twice. Tending calls it until everything is read.
"""

from datetime import datetime
from uuid import UUID


def ingest_some(job_id: UUID, token: int, until: datetime) -> bool:
    """Read a slice of a validating job, until about `until`; True when there is no more to do.

    `token` is the job's `tend_token`, as its tender took it: when another one has taken the job
    since, nothing more is written. Ends with the job ready, in progress, finalizing (nothing is
    left to compute) or failed.
    """
    raise NotImplementedError
