"""The Celery tasks of billing. Celery only wakes them: what there is to do is in PostgreSQL.

A wake-up may be lost, late or doubled without harm; the beat sends one regularly. Each task is
short, far below the broker's visibility timeout, and carries ids only.
"""

from celery import shared_task

from billing.usage.rollups import roll_up


@shared_task(name="billing.roll_up_usage")
def roll_up_usage() -> None:
    """Count queued usage events in the hourly rollups."""
    roll_up()
