"""`GET /v1/usage/requests/{x-request-id}`: what one request was held, counted and charged for."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

import billing.facade
from billing.contracts import Correction, Receipt, ReceiptNotFound
from billing.facade import decimal_string
from headrace import errors
from headrace.gateway.request_ids import parse_request_id, public_request_id
from headrace.management_api.authentication import ApiKeyAuthentication, calling_identity
from tenants.contracts import KeyKind, KeyScope, Permission, PermissionDenied


class TokensShown(serializers.Serializer[Any]):
    """Disjoint counts by price class."""

    uncached_input = serializers.IntegerField()
    cached_input = serializers.IntegerField()
    output = serializers.IntegerField()


class UnitPricesShown(serializers.Serializer[Any]):
    """Micro-units of currency per million tokens."""

    input = serializers.IntegerField()
    cached_input = serializers.IntegerField()
    output = serializers.IntegerField()


class TimingsShown(serializers.Serializer[Any]):
    """Where the time went."""

    queue = serializers.IntegerField()
    prefill = serializers.IntegerField()
    decode = serializers.IntegerField()


class LegShown(serializers.Serializer[Any]):
    """One signed ledger entry."""

    account = serializers.CharField()
    amount_pico = serializers.CharField()


class LedgerShown(serializers.Serializer[Any]):
    """What the request did to the ledger."""

    transaction_id = serializers.UUIDField(allow_null=True)
    legs = LegShown(many=True)


class CorrectionShown(serializers.Serializer[Any]):
    """What repricing made of the charge later; a negative amount was given back."""

    made_at = serializers.DateTimeField()
    reason = serializers.CharField()
    old_pico = serializers.CharField()
    new_pico = serializers.CharField()
    amount_pico = serializers.CharField()
    amount = serializers.CharField()
    written_off_pico = serializers.CharField()
    transaction_id = serializers.UUIDField()


class ReceiptShown(serializers.Serializer[Any]):
    """What one request was held, counted and charged for."""

    object = serializers.ChoiceField(["usage.receipt"])
    id = serializers.CharField()
    project_id = serializers.UUIDField()
    api_key_id = serializers.UUIDField()
    state = serializers.ChoiceField(["open", "posted", "voided"])
    tier = serializers.CharField()
    model_asked = serializers.CharField()
    model_served = serializers.CharField(allow_null=True)
    finish_reason = serializers.CharField(allow_null=True)
    source = serializers.CharField(allow_null=True)  # type: ignore[assignment]  # a field, as DRF means it
    tokens = TokensShown()
    price_micros_per_mtok = UnitPricesShown()
    currency = serializers.CharField()
    held_pico = serializers.CharField()
    amount_pico = serializers.CharField()
    amount = serializers.CharField()
    timings_ms = TimingsShown()
    held_at = serializers.DateTimeField()
    settled_at = serializers.DateTimeField(allow_null=True)
    user_id = serializers.CharField(allow_null=True)
    tags = serializers.DictField(child=serializers.CharField())
    ledger = LedgerShown()
    corrections = CorrectionShown(many=True)


class ReceiptView(APIView):
    """The receipt of a request of the calling key's project; anybody else's is a 404.

    An admin key that may read requests sees those of all its organization's projects.
    """

    authentication_classes = [ApiKeyAuthentication]

    @extend_schema(responses=ReceiptShown)
    def get(self, request: Request, request_id: str) -> Response:
        """One receipt; reads never bill."""
        identity = calling_identity(request)
        if identity.kind is KeyKind.ADMIN:
            if Permission.REQUESTS_READ not in identity.permissions:
                raise PermissionDenied(Permission.REQUESTS_READ)
        elif KeyScope.USAGE not in identity.scopes:
            raise errors.insufficient_permissions("This API key lacks the scope 'usage'.")
        parsed = parse_request_id(request_id)
        if parsed is None:
            raise ReceiptNotFound(request_id)
        receipt = billing.facade.receipt(identity.organization_id, parsed)
        if identity.kind is KeyKind.PROJECT and receipt.project_id != identity.project_id:
            raise ReceiptNotFound(request_id)
        return Response(render_receipt(receipt))


def render_correction(correction: Correction) -> dict[str, Any]:
    """A correction as JSON."""
    return {
        "made_at": correction.made_at.isoformat(),
        "reason": correction.reason,
        "old_pico": str(correction.old_pico),
        "new_pico": str(correction.new_pico),
        "amount_pico": str(correction.charged_pico),
        "amount": decimal_string(correction.charged_pico),
        "written_off_pico": str(correction.written_off_pico),
        "transaction_id": str(correction.ledger_transaction_id),
    }


def render_receipt(receipt: Receipt) -> dict[str, Any]:
    """The receipt as JSON: amounts as exact integers beside decimal strings, never floats."""
    counts = receipt.counts
    return {
        "object": "usage.receipt",
        "id": public_request_id(receipt.request_id),
        "project_id": str(receipt.project_id),
        "api_key_id": str(receipt.key_id),
        "state": receipt.state,
        "tier": receipt.tier.value,
        "model_asked": receipt.model_asked,
        "model_served": receipt.model_served,
        "finish_reason": receipt.finish_reason,
        "source": receipt.source.value if receipt.source else None,
        "tokens": {
            "uncached_input": counts.uncached_input_tokens,
            "cached_input": counts.cached_input_tokens,
            "output": counts.output_tokens,
        },
        "price_micros_per_mtok": {
            "input": receipt.input_micros_per_mtok,
            "cached_input": receipt.cached_input_micros_per_mtok,
            "output": receipt.output_micros_per_mtok,
        },
        "currency": receipt.currency,
        "held_pico": str(receipt.held_pico),
        "amount_pico": str(receipt.charge_pico),
        "amount": decimal_string(receipt.charge_pico),
        "timings_ms": {
            "queue": receipt.queue_ms,
            "prefill": receipt.prefill_ms,
            "decode": receipt.decode_ms,
        },
        "held_at": receipt.held_at.isoformat(),
        "settled_at": receipt.settled_at.isoformat() if receipt.settled_at else None,
        "user_id": receipt.end_user or None,
        "tags": dict(receipt.tags),
        "ledger": {
            "transaction_id": str(receipt.ledger_transaction_id)
            if receipt.ledger_transaction_id
            else None,
            "legs": [
                {"account": leg.account_kind, "amount_pico": str(leg.amount_pico)}
                for leg in receipt.ledger_legs
            ],
        },
        "corrections": [render_correction(one) for one in receipt.corrections],
    }
