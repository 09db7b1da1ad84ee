"""The tables of bulk work: stored files, jobs, their items and each attempt at one.

All are under row-level security (sql/); composite foreign keys there keep a file, a job and its
items inside their tenant. Used inside `batch_jobs` only: `facade.py` hands out frozen values.
"""

from batch_jobs.models.files import StoredFile
from batch_jobs.models.items import BulkAttempt, BulkItem, ItemState
from batch_jobs.models.jobs import BulkJob, JobKind, JobState, ProgressSample, SummaryPlan

__all__ = [
    "BulkAttempt",
    "BulkItem",
    "BulkJob",
    "ItemState",
    "JobKind",
    "JobState",
    "ProgressSample",
    "StoredFile",
    "SummaryPlan",
]
