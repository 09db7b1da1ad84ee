"""Recharges: credit bought without asking, and the warning before it is needed.

One recharge at a time, none in the pause after a failure, none past the month's maximum: the
database decides, whoever asks and how often. Called by the minute's task (housekeeper).
"""

import logging
from uuid import UUID

from django.db import DatabaseError

from billing.contracts import BillingError, TopUp
from billing.credit.topups import payment_provider, top_up
from billing.retry import call

RECHARGES_MAX = 200
"""Organizations one run looks at; the rest waits for the next."""

logger = logging.getLogger(__name__)


def watch_balances(using: str = "housekeeper") -> int:
    """Tell `balance.low` once for each fall below a warning level; returns how many were told."""
    [(told,)] = call("SELECT billing_watch_balances(%s)", [RECHARGES_MAX], using)
    return int(told)


def begin_recharge(organization_id: UUID, using: str = "housekeeper") -> TopUp | None:
    """The recharge that is due now, as a pending top-up that is yet to be charged; or None."""
    [(top_up_id,)] = call("SELECT billing_begin_recharge(%s)", [organization_id], using)
    return None if top_up_id is None else top_up(organization_id, top_up_id, using)


def recharge_due(using: str = "housekeeper") -> list[TopUp]:
    """Begin and charge every recharge that is due. Raises TopUpUnavailable without a provider.

    One that could not be sent stays pending until the provider's own look at what is overdue
    sends it again; the top-up's id keeps a repetition from charging twice.
    """
    provider = payment_provider()
    begun = []
    for (organization_id,) in call(
        "SELECT * FROM billing_recharges_due(%s)", [RECHARGES_MAX], using
    ):
        try:
            recharge = begin_recharge(organization_id, using)
            if recharge is not None:
                begun.append(recharge)
                provider.charge(recharge)
        except (BillingError, DatabaseError):
            # Somebody's to look at, and no reason to let the others wait.
            logger.exception("organization %s cannot be recharged", organization_id)
    return begun
