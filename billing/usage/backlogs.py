"""How much usage waits to be counted and to be told to Stripe, and what Stripe told waits.

For an operator to watch. Runs as the housekeeper, names no tenant, touches no money. Called when
metrics are read.
"""

from billing.contracts import BillingBacklogs
from billing.retry import call

QUEUE_COUNTED_MAX = 100_000
"""A longer queue is told as this long; so are more messages."""
_BACKLOGS = """
    SELECT (SELECT count(*) FROM (SELECT FROM billing_usage_delta LIMIT %s) AS queue),
           coalesce((SELECT floor(extract(epoch FROM now() - min(hour)) / 3600)
                       FROM billing_stripe_export WHERE state = 'pending'), 0)::int,
           coalesce((SELECT extract(epoch FROM now() - min(received_at))
                       FROM billing_stripe_message WHERE outcome = ''), 0)::int,
           (SELECT count(*) FROM (SELECT FROM billing_stripe_message
                                   WHERE outcome = 'rejected' LIMIT %s) AS forged),
           (SELECT count(*) FROM (SELECT FROM billing_stripe_message
                                   WHERE outcome IN ('invalid', 'failed') LIMIT %s) AS left_over)
"""


def backlogs(using: str = "housekeeper") -> BillingBacklogs:
    """What waits now; an hour that has just closed is an hour late."""
    [(queued, late_hours, lag_s, rejected, unapplied)] = call(
        _BACKLOGS, [QUEUE_COUNTED_MAX] * 3, using
    )
    return BillingBacklogs(
        rollup_events=queued,
        stripe_late_hours=max(late_hours, 0),
        stripe_inbox_lag_s=max(lag_s, 0),
        stripe_rejected=rejected,
        stripe_unapplied=unapplied,
    )
