"""What webhooks, deliveries and event kinds look like in bodies and in the API's description."""

from typing import Any

from rest_framework import serializers

from headrace.management_api.bodies import Body

KINDS_MAX = 64
DESCRIPTION_CHARS_MAX = 120
URL_CHARS_MAX = 2048


class WebhookBody(Body):
    """What a tenant says of an endpoint; no kinds is all kinds."""

    url = serializers.CharField(max_length=URL_CHARS_MAX)
    kinds = serializers.ListField(
        child=serializers.CharField(max_length=64), max_length=KINDS_MAX, required=False
    )
    description = serializers.CharField(
        max_length=DESCRIPTION_CHARS_MAX, allow_blank=True, required=False
    )


class WebhookChange(WebhookBody):
    """What of it may be changed; enabling one that was disabled forgets its failures."""

    enabled = serializers.BooleanField(required=False)


class WebhookShown(serializers.Serializer[Any]):
    """An endpoint as it is read."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    url = serializers.CharField()
    description = serializers.CharField()
    kinds = serializers.ListField(child=serializers.CharField())
    enabled = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    failing_since = serializers.DateTimeField(allow_null=True)
    disabled_at = serializers.DateTimeField(allow_null=True)


class WebhookMade(WebhookShown):
    """A new endpoint, with its secret this once."""

    secret = serializers.CharField()


class WebhookSecret(serializers.Serializer[Any]):
    """A new secret, shown this once."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    secret = serializers.CharField()


class AttemptShown(serializers.Serializer[Any]):
    """One try at a delivery."""

    attempt = serializers.IntegerField()
    started_at = serializers.DateTimeField()
    latency_ms = serializers.IntegerField()
    status_code = serializers.IntegerField(allow_null=True)
    error = serializers.CharField(allow_null=True)
    answer_start = serializers.CharField()


class DeliveryShown(serializers.Serializer[Any]):
    """One event on its way to one endpoint."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    webhook_id = serializers.UUIDField()
    event_id = serializers.CharField()
    kind = serializers.CharField()
    state = serializers.ChoiceField(["pending", "delivered", "failed"])
    attempts = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    next_at = serializers.DateTimeField(allow_null=True)
    delivered_at = serializers.DateTimeField(allow_null=True)
    log = AttemptShown(many=True)


class EventKindShown(serializers.Serializer[Any]):
    """A kind of events."""

    object = serializers.CharField()
    id = serializers.CharField()
    description = serializers.CharField()


class EventKindList(serializers.Serializer[Any]):
    """All kinds there are."""

    object = serializers.CharField()
    data = EventKindShown(many=True)  # type: ignore[assignment]  # a field, as DRF means it
