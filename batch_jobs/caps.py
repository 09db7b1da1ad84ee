"""How much one organization may have waiting: unfinished jobs, and prompt tokens in them.

Both are exact however many jobs start at once: who asks holds the organization's turn until its
transaction ends. Called where jobs are made, and where their items have been counted.
"""

from uuid import UUID

from django.conf import settings
from django.db import connections
from django.db.models import QuerySet, Sum

from batch_jobs.contracts import TooMuchEnqueued
from batch_jobs.models import BulkJob, JobState

ENDED = [JobState.COMPLETED, JobState.FAILED, JobState.EXPIRED, JobState.CANCELLED]
_ADVISORY_CLASS = 0x6261_7463


def check_jobs(organization_id: UUID, using: str) -> None:
    """Room for one more job; raises TooMuchEnqueued. Inside the transaction that makes it."""
    _take_turn(organization_id, using)
    jobs_max = settings.BATCH_JOBS_MAX
    if _unfinished(organization_id, using).count() >= jobs_max:
        raise TooMuchEnqueued(
            f"Limit of unfinished jobs reached in organization. Limit: {jobs_max:,} jobs. Please"
            " try again once some have been completed."
        )


def check_tokens(organization_id: UUID, job_id: UUID, model: str, tokens: int, using: str) -> None:
    """Room for so many prompt tokens of a job; raises TooMuchEnqueued.

    Inside the transaction that sets its `enqueued_tokens`.
    """
    _take_turn(organization_id, using)
    tokens_max = settings.BATCH_ENQUEUED_TOKENS_MAX
    others = _unfinished(organization_id, using).exclude(id=job_id)
    enqueued = others.aggregate(sum=Sum("enqueued_tokens"))["sum"] or 0
    if enqueued + tokens > tokens_max:
        raise TooMuchEnqueued(
            f"Enqueued token limit reached for {model} in organization. Limit: {tokens_max:,}"
            f" enqueued tokens; this job has about {tokens:,}. Please try again once some"
            " in_progress jobs have been completed."
        )


def _unfinished(organization_id: UUID, using: str) -> QuerySet[BulkJob]:
    jobs = BulkJob.objects.using(using).filter(organization_id=organization_id)
    return jobs.exclude(state__in=ENDED)


def _take_turn(organization_id: UUID, using: str) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(%s, hashtext(%s))",
            [_ADVISORY_CLASS, str(organization_id)],
        )
