"""Stripe's messages at the web's door: what is signed is kept as it came, for a worker to apply.

Never reads a message and never moves money: the web's database role can only add to the inbox,
and the worker believes none of it before it has verified the signature itself (`inbox`). Called by
the web's route, as role app.
"""

from collections.abc import Sequence
from datetime import datetime

from celery import current_app
from django.conf import settings
from django.db import connections, transaction

from billing.contracts import StripeEventInvalid
from billing.models.stripe import MESSAGE_BYTES_MAX
from billing.stripe_sync.signatures import verify

APPLY = "billing.apply_stripe_messages"


def receive(
    body: bytes,
    header: str | None,
    secrets: Sequence[str],
    now: datetime,
    using: str = "default",
) -> None:
    """Keep one message, and wake a worker; the beat wakes one too, should that be lost.

    Raises StripeSignatureInvalid, StripeEventInvalid for one that is too long.
    """
    if len(body) > MESSAGE_BYTES_MAX:
        raise StripeEventInvalid(f"a message has at most {MESSAGE_BYTES_MAX} bytes")
    verify(body, header, secrets, int(now.timestamp()))
    with connections[using].cursor() as cursor:
        cursor.execute(
            "INSERT INTO billing_stripe_message (body, signature) VALUES (%s, %s)", [body, header]
        )
    transaction.on_commit(_wake, using=using, robust=True)


def _wake() -> None:
    current_app.send_task(APPLY, expires=settings.STRIPE_INBOX_S, retry=False)
