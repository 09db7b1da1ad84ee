"""The Celery task of bulk work. Celery only wakes pumps: what there is to do is in PostgreSQL.

A wake-up may be lost, late or doubled without harm; the beat sends one regularly. The task must
stay short, far below the broker's visibility timeout, after which Redis hands it out again.
"""

import threading
import time
from datetime import UTC, datetime

from celery import shared_task
from django.conf import settings

from batch_jobs.batches.forgetting import forget_lines
from batch_jobs.files.sweeping import sweep_files
from batch_jobs.old_pump import PumpLimits, pump
from batch_jobs.ports import completion_port
from batch_jobs.tending import tend
from batch_jobs.waking import TEND, wake_tending

_seat = threading.BoundedSemaphore(1)
"""One pump a process: the other threads of a worker stay free for the sweeper, and wake-ups that
pile up behind a busy pump end at once."""
_tending_seat = threading.BoundedSemaphore(1)


@shared_task(name="batch_jobs.pump_summaries")
def pump_summaries() -> None:
    """Run one turn of the pump; wake the next one if there was anything to do."""
    if not _seat.acquire(blocking=False):
        return
    try:
        leased = pump(completion_port(), _limits())
    finally:
        _seat.release()
    # After the seat is free: a wake-up that finds it taken would be the last.
    if leased:
        wake_pump()


@shared_task(name=TEND)
def tend_jobs() -> None:
    """Look after jobs for a while; wake the next one if there was anything to do."""
    if not _tending_seat.acquire(blocking=False):
        return
    try:
        steps = tend(datetime.now(UTC))
    finally:
        _tending_seat.release()
    if steps:
        wake_tending()


@shared_task(name="batch_jobs.sweep")
def sweep() -> None:
    """Forget what was kept for long enough: files, and the rows of batches."""
    now, ends_at = datetime.now(UTC), time.monotonic() + settings.BATCH_TEND_S
    sweep_files(now)
    while time.monotonic() < ends_at and forget_lines(now):
        continue


def wake_pump() -> None:
    """Ask a worker for a turn of the pump."""
    pump_summaries.apply_async(expires=settings.BATCH_WAKE_EXPIRES_S)


def _limits() -> PumpLimits:
    return PumpLimits(
        items_max=settings.BATCH_CLAIM_MAX,
        lease_s=settings.BATCH_LEASE_S,
        lease_renewals_max=settings.BATCH_LEASE_RENEWALS_MAX,
        attempts_max=settings.BATCH_ATTEMPTS_MAX,
        retry_s=settings.BATCH_RETRY_S,
        job_age_max_s=settings.BATCH_JOB_AGE_MAX_S,
        summary_tokens_max=settings.SUMMARY_TOKENS_MAX,
    )
