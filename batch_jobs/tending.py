"""Looking after jobs: what has to be read, ended or written is taken a step further.

Never computes a line: items are the pump's. One job at a time, each under a lease, so that any
number of workers tend side by side and a killed one leaves nothing that the next cannot go on
with. Called by the Celery task; what there is to do is in PostgreSQL.
"""

import logging
import time
from collections.abc import Callable
from datetime import datetime

from django.conf import settings

from batch_jobs import ending
from batch_jobs.batches import output, validating
from batch_jobs.job_leases import (
    LeasedJob,
    LeaseLost,
    StepStopped,
    job_row,
    lease_job,
    release,
    renewed,
)
from batch_jobs.models import JobKind, JobState
from batch_jobs.stopping import goes_on_until
from batch_jobs.summaries.finishing import finish as finish_summary
from batch_jobs.summaries.finishing import forget_results
from batch_jobs.summaries.ingesting import ingest_some
from batch_jobs.summaries.retrying import is_retried, retry_some
from batch_jobs.summaries.watching import watch

logger = logging.getLogger(__name__)

Step = Callable[[LeasedJob, datetime], bool]
"""Takes a job further for half a minute or so; False when it can only wait for what runs."""


def tend(now: datetime) -> int:
    """Looks after jobs until none needs it, TEND_S have passed or the process is told to end;
    returns how many steps it took.

    A step that fails leaves its job for later and does not keep others from their turn.
    """
    steps, ends_at = 0, time.monotonic() + settings.BATCH_TEND_S
    _watch(now)
    while goes_on_until(ends_at):
        job = lease_job(now, settings.BATCH_TEND_LEASE_S)
        if job is None:
            break
        steps += 1
        _take_step(job, now)
    while goes_on_until(ends_at) and forget_results(now):
        steps += 1
    return steps


def _watch(now: datetime) -> None:
    try:
        watch(now)
    except Exception:
        # A process edge: a preview or a warning that fails must not keep jobs from their turn.
        logger.exception("summarisation jobs could not be watched")


def _take_step(job: LeasedJob, now: datetime) -> None:
    wait_s = settings.BATCH_TEND_WAIT_S
    try:
        with renewed(job):
            is_further = step_of(job)(job, now)
        if is_further:
            wait_s = 0
    except (LeaseLost, StepStopped):
        # Superseded, and then releasing changes nothing; or its owner cancelled it meanwhile; or
        # another process is to go on at once.
        wait_s = 0
    except Exception:
        # A process edge: one job that cannot be tended must not stop the others.
        logger.exception("job %s could not be tended", job.job_id)
        wait_s = settings.BATCH_TEND_RETRY_S
    release(job, wait_s)


def step_of(job: LeasedJob) -> Step:
    """What a job of this kind needs in this state."""
    if job.expired:
        return ending.expire
    match JobState(job.state), JobKind(job.kind):
        case JobState.CANCELLING, _:
            return ending.cancel
        case JobState.VALIDATING, JobKind.BATCH:
            return validating.validate
        case JobState.VALIDATING, JobKind.SUMMARY:
            return _ingest
        case JobState.FINALIZING, JobKind.BATCH:
            return output.finish
    return _finish_summary


def _ingest(job: LeasedJob, now: datetime) -> bool:
    if is_retried(job):
        return retry_some(job, now)
    return ingest_some(job, now)


def _finish_summary(job: LeasedJob, now: datetime) -> bool:
    if ending.is_ending(job_row(job)) and not ending.end_items(job, now):
        return False
    finish_summary(job, now)
    return False
