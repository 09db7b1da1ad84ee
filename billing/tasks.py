"""The Celery tasks of billing. Celery only wakes them: what there is to do is in PostgreSQL.

A wake-up may be lost, late or doubled without harm; the beat sends one regularly. Each task is
short, far below the broker's visibility timeout, and carries ids only.
"""

from celery import shared_task

from billing.contracts import TopUpUnavailable
from billing.credit.granting import tend_credit as tend_all
from billing.credit.recharges import recharge_due, watch_balances
from billing.invoices.closing import close_due
from billing.usage.rollups import roll_up


@shared_task(name="billing.roll_up_usage")
def roll_up_usage() -> None:
    """Count queued usage events in the hourly rollups."""
    roll_up()


@shared_task(name="billing.tend_credit")
def tend_credit() -> None:
    """Begin and end credit that is due, warn of low balances, buy what is to be bought."""
    tend_all()
    watch_balances()
    try:
        recharge_due()
    except TopUpUnavailable:
        return


@shared_task(name="billing.close_periods")
def close_periods() -> None:
    """Issue the documents of periods whose grace is over, a month of each organization a run."""
    close_due()
