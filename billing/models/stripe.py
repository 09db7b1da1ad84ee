"""What Stripe was told, and what it told: customers, checkouts, exports, and events applied.

The rows are the outbox and the inbox of `billing.stripe_sync`. Used inside `billing` only.
"""

from django.db import models
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from tenants.facade import TenantModel

ORGANIZATION = "tenants.OrganizationRow"
ID_LENGTH_MAX = 255
"""Of Stripe's ids, which say themselves to be no longer."""
EXPORT_STATES = ["pending", "delivered", "refused"]
EVENT_OUTCOMES = ["applied", "unchanged", "quarantined"]
MESSAGE_BYTES_MAX = 1024 * 1024
SIGNATURE_LENGTH_MAX = 2048
MESSAGE_OUTCOMES = ["", "ignored", *EVENT_OUTCOMES, "repeated", "rejected", "invalid", "failed"]
"""Empty while it waits. `rejected` is not signed by Stripe, `invalid` is and makes no sense,
`failed` could not be applied in all its tries."""


class StripeAccount(TenantModel):
    """An organization as Stripe's customer. Empty ids are not known yet."""

    organization = models.OneToOneField(
        ORGANIZATION, models.PROTECT, primary_key=True, related_name="+"
    )
    customer_id = models.CharField(max_length=ID_LENGTH_MAX, db_default="")
    payment_method_id = models.CharField(max_length=ID_LENGTH_MAX, db_default="")
    """What a recharge is taken from: the card of the last top-up that was paid."""
    payment_method_at = models.DateTimeField(null=True)
    """When Stripe last said so: older news changes nothing."""
    is_demo = models.BooleanField(db_default=False)
    """Of an organization whose usage is never exported."""
    created_at = models.DateTimeField(db_default=Now())

    class Meta(TenantModel.Meta):
        db_table = "billing_stripe_account"
        constraints = [
            models.UniqueConstraint(
                fields=["customer_id"],
                condition=~models.Q(customer_id=""),
                name="billing_stripe_account_customer_once",
            )
        ]

    def __str__(self) -> str:
        return self.customer_id


class StripeMessage(models.Model):
    """A message as it came: the web inserts it and may not read it, the worker believes it only by
    its signature. Of no tenant until then. What came of it leaves its body empty, but for one that
    somebody must look at.
    """

    id = models.BigAutoField(primary_key=True)
    body = models.BinaryField()
    signature = models.CharField(max_length=SIGNATURE_LENGTH_MAX)
    received_at = models.DateTimeField(db_default=Now())
    """By the database's clock, which the web cannot set."""
    tries = models.PositiveIntegerField(db_default=0)
    next_try_at = models.DateTimeField(db_default=Now())
    outcome = models.CharField(max_length=16, db_default="")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "billing_stripe_message"
        constraints = [
            models.CheckConstraint(
                name="billing_stripe_message_outcome",
                condition=models.Q(outcome__in=MESSAGE_OUTCOMES),
            ),
            models.CheckConstraint(
                name="billing_stripe_message_ended",
                condition=models.Q(outcome="", ended_at=None)
                | (~models.Q(outcome="") & models.Q(ended_at__isnull=False)),
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_try_at"],
                condition=models.Q(outcome=""),
                name="billing_stripe_message_waiting",
            )
        ]

    def __str__(self) -> str:
        return f"message {self.id} of {self.received_at}: {self.outcome or 'waiting'}"


class StripeEvent(TenantModel):
    """An event whose effect is in the books: written in the transaction of that effect."""

    id = models.CharField(max_length=ID_LENGTH_MAX, primary_key=True)
    organization = models.ForeignKey(
        ORGANIZATION, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    kind = models.CharField(max_length=100)
    top_up_id = models.UUIDField()
    outcome = models.CharField(max_length=16)
    detail = models.CharField(max_length=200, db_default="")
    created_at = models.DateTimeField()
    """By Stripe's clock."""
    applied_at = models.DateTimeField(db_default=Now())

    class Meta(TenantModel.Meta):
        db_table = "billing_stripe_event"
        constraints = [
            models.CheckConstraint(
                name="billing_stripe_event_outcome",
                condition=models.Q(outcome__in=EVENT_OUTCOMES),
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}: {self.outcome}"


class StripeCheckout(TenantModel):
    """The page on which a top-up is paid."""

    top_up_id = models.UUIDField(primary_key=True)
    organization = models.ForeignKey(
        ORGANIZATION, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    session_id = models.CharField(max_length=ID_LENGTH_MAX, unique=True)
    url = models.CharField(max_length=2048)
    expires_at = models.DateTimeField()
    looked_at = models.DateTimeField(db_default=Now())
    """When we last asked what became of it, should the message be lost."""

    class Meta(TenantModel.Meta):
        db_table = "billing_stripe_checkout"

    def __str__(self) -> str:
        return self.session_id


class StripeExport(TenantModel):
    """Tokens of one closed hour, model and class on their way to a meter; `id` is the identifier.

    What an hour gains after it was exported is a row of its own, with the next sequence.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(
        ORGANIZATION, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    hour = models.DateTimeField()
    model = models.CharField(max_length=128)
    token_class = models.CharField(max_length=32)
    sequence = models.PositiveIntegerField()
    tokens = models.BigIntegerField()
    state = models.CharField(max_length=16, db_default="pending")
    sent_at = models.DateTimeField(null=True)
    """When it was first sent: its identifier guards against doubles for a day from then."""
    attempts = models.PositiveIntegerField(db_default=0)
    failure = models.CharField(max_length=200, db_default="")
    closed_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta(TenantModel.Meta):
        db_table = "billing_stripe_export"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "hour", "model", "token_class", "sequence"],
                name="billing_stripe_export_once",
            ),
            models.CheckConstraint(
                name="billing_stripe_export_positive", condition=models.Q(tokens__gt=0)
            ),
            models.CheckConstraint(
                name="billing_stripe_export_state", condition=models.Q(state__in=EXPORT_STATES)
            ),
        ]
        indexes = [
            models.Index(
                fields=["hour"],
                condition=models.Q(state="pending"),
                name="billing_stripe_export_waiting",
            )
        ]

    def __str__(self) -> str:
        return f"{self.tokens} {self.token_class} of {self.model} at {self.hour}: {self.state}"
