"""The stock `stripe` client, made from settings. Importing this imports `stripe`: 27 MB.

Never inside a transaction: a call may take STRIPE_TIMEOUT_S. Called by the modules beside it.
"""

import functools
import logging

import stripe
from django.conf import settings
from django.db import connections

from billing.contracts import TopUpUnavailable

RETRIES_MAX = 1
"""By the client itself, with the same idempotency key; then the row waits for the next run."""

logging.getLogger("stripe").setLevel(logging.WARNING)
"""At INFO it logs every call's address, and so everybody's ids."""


def stripe_client() -> stripe.StripeClient:
    """The client. Raises TopUpUnavailable without a key."""
    for connection in connections.all(initialized_only=True):
        assert not connection.in_atomic_block, "Stripe is never called inside a transaction"
    if not settings.STRIPE_API_KEY:
        raise TopUpUnavailable("no Stripe key is set")
    return _made(settings.STRIPE_API_KEY, settings.STRIPE_API_BASE, settings.STRIPE_TIMEOUT_S)


@functools.lru_cache(maxsize=2)
def _made(api_key: str, base: str, timeout_s: int) -> stripe.StripeClient:
    return stripe.StripeClient(
        api_key,
        base_addresses={"api": base, "meter_events": base} if base else {},
        http_client=stripe.RequestsClient(timeout=timeout_s),
        max_network_retries=RETRIES_MAX,
    )
