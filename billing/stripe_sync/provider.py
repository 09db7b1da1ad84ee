"""The payment provider behind the top-ups' port. Light: the heavy client comes with its first call.

Filled in by the wiring when a Stripe key is set.
"""

from django.conf import settings

from billing.contracts import StartedTopUp, TopUp
from billing.credit.topups import use_payment_provider


class StripeProvider:
    """Checkout for people, the card on file for recharges."""

    def begin(self, top_up: TopUp, return_url: str) -> StartedTopUp:
        """Open a page on which the top-up is paid. Raises TopUpUnavailable."""
        from billing.stripe_sync.payments import begin

        return begin(top_up, return_url)

    def resume(self, top_up: TopUp, return_url: str) -> StartedTopUp:
        """The page of a top-up that was begun, while it is open. Raises TopUpUnavailable."""
        from billing.stripe_sync.payments import resume

        return resume(top_up, return_url)

    def charge(self, top_up: TopUp) -> None:
        """Take a recharge from the card on file."""
        from billing.stripe_sync.payments import charge

        charge(top_up)


def connect_stripe() -> None:
    """Let people pay in by Stripe, where a key is set; else nobody can."""
    use_payment_provider(StripeProvider() if settings.STRIPE_API_KEY else None)
