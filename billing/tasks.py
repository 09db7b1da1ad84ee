"""The Celery tasks of billing. Celery only wakes them: what there is to do is in PostgreSQL.

A wake-up may be lost, late or doubled without harm; the beat sends one regularly. Each task is
short, far below the broker's visibility timeout, and carries ids only.
"""

import logging
import threading
from datetime import UTC, datetime, timedelta

from celery import shared_task
from django.conf import settings

from billing.contracts import TopUpUnavailable
from billing.credit.granting import tend_credit as tend_all
from billing.credit.recharges import recharge_due, watch_balances
from billing.invoices.closing import close_due
from billing.pruning import prune
from billing.stripe_sync.inbox import apply_messages
from billing.stripe_sync.webhooks import APPLY
from billing.usage.rollups import roll_up

COMPARED_DAYS = 2
"""Yesterday, and the day before for what came late."""

_stripe_seat = threading.BoundedSemaphore(1)
"""One a process: a Stripe that answers slowly must not take all threads of a worker."""

logger = logging.getLogger(__name__)


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


@shared_task(name="billing.prune")
def prune_old() -> None:
    """Delete old counters of quotas, and what Stripe was told and told long ago."""
    prune(datetime.now(UTC))


@shared_task(name=APPLY)
def apply_stripe_messages() -> None:
    """Verify and apply what Stripe has sent."""
    apply_messages(settings.STRIPE_WEBHOOK_SECRETS, datetime.now(UTC))


@shared_task(name="billing.settle_stripe")
def settle_stripe() -> None:
    """Ask Stripe about payments whose message is overdue, and send refunds that are."""
    if not settings.STRIPE_API_KEY:
        return
    from billing.stripe_sync.payments import settle
    from billing.stripe_sync.refunds import settle_refunds

    settle(datetime.now(UTC))
    settle_refunds(datetime.now(UTC))


@shared_task(name="billing.export_to_stripe")
def export_to_stripe() -> None:
    """Tell Stripe's meters what closed hours used."""
    if not settings.STRIPE_API_KEY or not _stripe_seat.acquire(blocking=False):
        return
    try:
        from billing.stripe_sync.exports import export

        export(datetime.now(UTC))
    finally:
        _stripe_seat.release()


@shared_task(name="billing.compare_with_stripe")
def compare_with_stripe() -> None:
    """Send what is still to be sent, then hold Stripe's sums of two days against ours."""
    if not settings.STRIPE_API_KEY:
        return
    from billing.stripe_sync import refunds
    from billing.stripe_sync.comparing import compare
    from billing.stripe_sync.exports import REACH, export

    now = datetime.now(UTC)
    refunds.settle_refunds(now, refunds.REACH)
    for unsent in refunds.overdue_refunds(now):
        logger.error(
            "stripe has not taken a refund of %d pico-%s of top-up %s: give it back otherwise",
            unsent.amount_pico,
            unsent.currency,
            unsent.top_up_id,
        )
    export(now, REACH)
    for days_ago in range(1, COMPARED_DAYS + 1):
        comparison = compare((now - timedelta(days=days_ago)).date())
        for each in comparison.mismatches:
            logger.error(
                "stripe has %d %s tokens of %s for %s on %s, we told %d",
                each.their_tokens,
                each.token_class,
                each.model,
                each.organization_id,
                comparison.day,
                each.our_tokens,
            )
