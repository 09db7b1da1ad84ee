"""`GET /v1/usage/requests/{x-request-id}`: what one request was held, counted and charged for."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

import billing.facade
from billing.contracts import Receipt, ReceiptNotFound
from billing.facade import decimal_string
from headrace.gateway.request_ids import parse_request_id, public_request_id
from headrace.management_api.authentication import calling_identity


class ReceiptView(APIView):
    """The receipt of a request of the calling key's organization; anybody else's is a 404."""

    def get(self, request: Request, request_id: str) -> Response:
        """One receipt; reads never bill."""
        parsed = parse_request_id(request_id)
        if parsed is None:
            raise ReceiptNotFound(request_id)
        receipt = billing.facade.receipt(calling_identity(request).organization_id, parsed)
        return Response(render_receipt(receipt))


def render_receipt(receipt: Receipt) -> dict[str, Any]:
    """The receipt as JSON: amounts as exact integers beside decimal strings, never floats."""
    counts = receipt.counts
    return {
        "object": "usage.receipt",
        "id": public_request_id(receipt.request_id),
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
        "ledger": {
            "transaction_id": str(receipt.ledger_transaction_id)
            if receipt.ledger_transaction_id
            else None,
            "legs": [
                {"account": leg.account_kind, "amount_pico": str(leg.amount_pico)}
                for leg in receipt.ledger_legs
            ],
        },
    }
