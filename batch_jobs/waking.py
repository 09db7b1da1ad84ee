"""Waking workers by name: whoever leaves them something to do says so, once it is committed.

A wake-up may be lost or doubled without harm: the beat sends one every few seconds.
"""

from celery import current_app
from django.conf import settings
from django.db import transaction

TEND = "batch_jobs.tend"
PUMP = "batch_jobs.pump"


def wake_tending() -> None:
    """Asks a worker to look after jobs."""
    _wake(TEND)


def wake_tending_later(using: str) -> None:
    """Asks for it when the open transaction is committed, if the broker is there."""
    transaction.on_commit(wake_tending, using=using, robust=True)


def wake_pump() -> None:
    """Asks a worker for a turn of the pump."""
    _wake(PUMP)


def wake_pump_later(using: str) -> None:
    """Asks for it when the open transaction is committed, if the broker is there."""
    transaction.on_commit(wake_pump, using=using, robust=True)


def _wake(name: str) -> None:
    current_app.send_task(name, expires=settings.BATCH_WAKE_EXPIRES_S)
