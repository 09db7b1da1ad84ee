"""Once a day: Stripe's sums of a day beside ours, meter by meter and customer by customer.

Reads both and changes neither: what differs is reported, for somebody to look at. Called by a task
and by `manage.py reconcile_stripe`, as the housekeeper.
"""

from datetime import UTC, date, datetime, time, timedelta

from billing.contracts import StripeComparison, StripeMismatch
from billing.models import StripeAccount
from billing.retry import call
from billing.stripe_sync.client import stripe_client
from billing.stripe_sync.exports import HOUSEKEEPER, MeterKey, Meters

SUMS_MAX = 20_000
"""Of customers and meters in one comparison; each is a call to Stripe."""
TOLD = """
    SELECT organization_id, model, token_class,
           coalesce(sum(tokens) FILTER (WHERE state = 'delivered'), 0)::bigint
      FROM billing_stripe_export
     WHERE hour >= %s AND hour < %s
     GROUP BY 1, 2, 3
     ORDER BY 1, 2, 3
     LIMIT %s"""
USED = """
    SELECT coalesce(sum(uncached_input_tokens + cached_input_tokens + output_tokens), 0)::bigint
      FROM billing_usage_hour h
     WHERE hour >= %s AND hour < %s
       AND NOT EXISTS (SELECT FROM billing_stripe_account a
                        WHERE a.organization_id = h.organization_id AND a.is_demo)"""


def compare(day: date, using: str = HOUSEKEEPER) -> StripeComparison:
    """One UTC day. Raises stripe.StripeError when Stripe is away."""
    start = datetime.combine(day, time(), UTC)
    end = start + timedelta(days=1)
    told = call(TOLD, [start, end, SUMS_MAX + 1], using)
    assert len(told) <= SUMS_MAX, "more sums than one comparison takes"
    [(used_tokens,)] = call(USED, [start, end], using)
    customers = dict(
        StripeAccount.objects.using(using)
        .exclude(customer_id="")
        .values_list("organization_id", "customer_id")
    )
    meters = Meters()
    meters.load()
    mismatches = []
    for organization_id, model, token_class, ours in told:
        key = MeterKey(model, token_class)
        theirs = _theirs(
            meters.known.get(key.event_name), customers.get(organization_id), start, end
        )
        if theirs != ours:
            mismatches.append(
                StripeMismatch(organization_id, model, token_class, int(ours), theirs)
            )
    told_tokens = sum(int(row[3]) for row in told)
    return StripeComparison(day, len(told), int(used_tokens), told_tokens, tuple(mismatches))


def _theirs(meter_id: str | None, customer_id: str | None, start: datetime, end: datetime) -> int:
    if meter_id is None or customer_id is None:
        return 0
    sums = stripe_client().v1.billing.meters.event_summaries.list(
        meter_id,
        {
            "customer": customer_id,
            "start_time": int(start.timestamp()),
            "end_time": int(end.timestamp()),
        },
    )
    return sum(int(each.aggregated_value) for each in sums.data)
