"""What is to be told to tenants: events, webhook endpoints and deliveries to them, mail.

An event is written in the transaction of its cause; workers make deliveries and mail of it. Used
inside `tenants` only.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from tenants.models.people import OrganizationRow
from tenants.scope import TenantModel


class OutboxEvent(TenantModel):
    """Something that happened in an organization. Its id is the `webhook-id` of every delivery."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(OrganizationRow, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=64)
    data = models.JSONField()
    created_at = models.DateTimeField(db_default=Now())
    fanned_out_at = models.DateTimeField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "tenants_outbox_event"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "id"], name="tenants_outbox_event_with_tenant"
            ),
            models.CheckConstraint(
                name="tenants_outbox_kind_is_dotted",
                condition=models.Q(kind__regex=r"^[a-z_]+(\.[a-z_]+)+$"),
            ),
        ]
        indexes = [
            models.Index(
                fields=["id"],
                name="tenants_outbox_waiting",
                condition=models.Q(fanned_out_at=None),
            )
        ]

    def __str__(self) -> str:
        return self.kind


class WebhookEndpoint(TenantModel):
    """An address of the tenant's that events are posted to, and its sealed signing secrets."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(OrganizationRow, on_delete=models.PROTECT, related_name="+")
    url = models.CharField(max_length=2048)
    description = models.CharField(max_length=120, blank=True)
    kinds = ArrayField(models.CharField(max_length=64), default=list)
    secret_sealed = models.BinaryField()
    previous_secret_sealed = models.BinaryField(null=True)
    previous_secret_until = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    failing_since = models.DateTimeField(null=True)
    disabled_at = models.DateTimeField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "tenants_webhook_endpoint"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "id"], name="tenants_webhook_endpoint_with_tenant"
            ),
        ]

    def __str__(self) -> str:
        return self.url


class DeliveryState(models.TextChoices):
    """A pending delivery is tried until it is delivered or given up."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


class WebhookDelivery(TenantModel):
    """One event on its way to one endpoint. `tries` counts since the last replay."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(OrganizationRow, on_delete=models.PROTECT, related_name="+")
    # Composite foreign keys in sql/ are the constraints of these, and cascade.
    endpoint = models.ForeignKey(
        WebhookEndpoint, models.DO_NOTHING, related_name="deliveries", db_constraint=False
    )
    event = models.ForeignKey(OutboxEvent, models.DO_NOTHING, related_name="+", db_constraint=False)
    state = models.CharField(
        max_length=16, choices=DeliveryState.choices, default=DeliveryState.PENDING
    )
    attempts = models.PositiveIntegerField(default=0)
    tries = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())
    next_at = models.DateTimeField(db_default=Now())
    lease_expires_at = models.DateTimeField(null=True)
    delivered_at = models.DateTimeField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "tenants_webhook_delivery"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "id"], name="tenants_webhook_delivery_with_tenant"
            ),
            models.UniqueConstraint(
                fields=["endpoint", "event"], name="tenants_one_delivery_of_an_event"
            ),
            models.CheckConstraint(
                name="tenants_webhook_delivery_state",
                condition=models.Q(state__in=DeliveryState.values),
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_at"],
                name="tenants_delivery_due",
                condition=models.Q(state=DeliveryState.PENDING),
            )
        ]

    def __str__(self) -> str:
        return f"{self.event_id} to {self.endpoint_id}"


class WebhookAttempt(TenantModel):
    """One try at a delivery: what was answered, or why nothing was."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(OrganizationRow, on_delete=models.PROTECT, related_name="+")
    delivery = models.ForeignKey(
        WebhookDelivery, models.DO_NOTHING, related_name="log", db_constraint=False
    )
    attempt = models.PositiveIntegerField()
    started_at = models.DateTimeField()
    latency_ms = models.PositiveIntegerField()
    status_code = models.PositiveSmallIntegerField(null=True)
    error = models.CharField(max_length=120, blank=True)
    answer_start = models.CharField(max_length=1024, blank=True)

    class Meta(TenantModel.Meta):
        db_table = "tenants_webhook_attempt"

    def __str__(self) -> str:
        return f"attempt {self.attempt}: {self.status_code or self.error}"


class Mail(TenantModel):
    """A mail to be sent once. What it says is sealed, and forgotten when it is sent."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(
        OrganizationRow, on_delete=models.PROTECT, related_name="+", null=True
    )
    event_id = models.UUIDField(null=True)
    to_address = models.EmailField()
    kind = models.CharField(max_length=64)
    context_sealed = models.BinaryField()
    attempts = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())
    next_at = models.DateTimeField(db_default=Now())
    sent_at = models.DateTimeField(null=True)
    failed_at = models.DateTimeField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "tenants_mail"
        constraints = [
            models.UniqueConstraint(
                fields=["event_id", "to_address"], name="tenants_one_mail_of_an_event"
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_at"],
                name="tenants_mail_due",
                condition=models.Q(sent_at=None, failed_at=None),
            )
        ]

    def __str__(self) -> str:
        return self.kind
