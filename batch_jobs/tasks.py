"""The Celery task of bulk work. Celery only wakes pumps: what there is to do is in PostgreSQL.

A wake-up may be lost, late or doubled without harm; the beat sends one regularly. The task must
stay short, far below the broker's visibility timeout, after which Redis hands it out again.
"""

import threading
import time
from datetime import UTC, datetime

from celery import shared_task
from django.conf import settings

from batch_jobs import stopping
from batch_jobs.batches.forgetting import forget_lines
from batch_jobs.files.sweeping import sweep_files
from batch_jobs.pump import process
from batch_jobs.tending import tend
from batch_jobs.waking import PUMP, TEND, wake_pump, wake_tending

_seat = threading.BoundedSemaphore(1)
"""One pump a process: the other threads of a worker stay free for the sweeper, and wake-ups that
pile up behind a busy pump end at once."""
_tending_seat = threading.BoundedSemaphore(1)


@shared_task(name=PUMP)
def run_pump() -> None:
    """Run one turn of the pump; wake the next one if there is more to do."""
    if not _seat.acquire(blocking=False):
        return
    try:
        has_more = process.run_turn()
    finally:
        _seat.release()
    # After the seat is free: a wake-up that finds it taken would be the last.
    if has_more:
        wake_pump()


def stop_work() -> None:
    """The worker is told to end: nothing more is claimed, and a tender stops at its next page."""
    stopping.stop()
    process.stop()


def drain_pump() -> None:
    """Blocks until nothing is in flight any more; before the gateway is closed."""
    process.drain()


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
    while stopping.goes_on_until(ends_at) and forget_lines(now):
        continue
