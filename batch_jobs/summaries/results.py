"""The results of a summarisation job, read from its rows a page at a time, also while it runs.

Never holds more than a page, and no transaction is open between two. How they are written (JSONL,
CSV, Parquet) is the door's.
"""

from collections.abc import Sequence
from uuid import UUID

from batch_jobs.contracts import Owner, SummaryResult


def read_results(
    owner: Owner, job_id: UUID, *, after_row: int, until_row: int | None, failures: bool
) -> Sequence[SummaryResult]:
    """The next page of documents that have ended, behind `after_row`; empty when there are none.

    With `failures` only those that have no summary. Raises JobNotFound, also when the results were
    deleted.
    """
    raise NotImplementedError


def row_of(owner: Owner, job_id: UUID, custom_id: str) -> int:
    """Where the document of this id is among the rows; raises InputInvalid, JobNotFound."""
    raise NotImplementedError


def shard_rows(owner: Owner, job_id: UUID, shard: int) -> tuple[int, int]:
    """Behind which row a shard begins, and with which it ends; raises InputInvalid, JobNotFound."""
    raise NotImplementedError
