"""`POST /stripe/events`: where Stripe says what became of payments. Its signature is its key.

The raw body is kept as it came, for a worker to apply; nothing here reads it. A 2xx says that it is
kept, anything else makes Stripe send the event again.
"""

from datetime import UTC, datetime

from django.conf import settings
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

import billing.facade


class StripeEventsView(APIView):
    """No session and no key: whoever signs with one of the endpoint's secrets is Stripe."""

    authentication_classes = []
    permission_classes = []
    parser_classes = []

    @extend_schema(exclude=True)
    def post(self, request: Request) -> Response:
        """Keep one event; what becomes of it is seen in the books."""
        billing.facade.receive_stripe_event(
            request.body,
            request.headers.get("stripe-signature"),
            settings.STRIPE_WEBHOOK_SECRETS,
            datetime.now(UTC),
        )
        return Response({"object": "stripe.event", "outcome": "accepted"})
