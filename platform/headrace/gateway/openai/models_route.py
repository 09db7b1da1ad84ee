"""`GET /v1/models` and `/v1/models/{id}`: what the calling key may use, with its prices."""

from typing import Any
from urllib.parse import unquote

import billing.facade
from billing.contracts import ModelNotFound, Offer, Quote, ServiceTier
from billing.facade import decimal_string
from headrace import errors
from headrace.gateway.admission.auth import identify
from headrace.gateway.database import in_database
from headrace.gateway.request_ids import new_request_id, public_request_id
from headrace.gateway.runtime import GatewayRuntime
from headrace.gateway.transport.http import (
    Receive,
    Scope,
    Send,
    encode_headers,
    send_error,
    send_json,
)
from tenants.contracts import KeyIdentity

PREFIX = "/v1/models"


async def models(_runtime: GatewayRuntime, scope: Scope, _receive: Receive, send: Send) -> None:
    """The list, or the one model that the path names (its id may hold `/` and `:`)."""
    try:
        identity = await identify(scope)
        asked = unquote(scope["path"][len(PREFIX) :].lstrip("/"))
        quotes = await in_database(_quotes, identity, asked)
    except errors.ApiError as error:
        await send_error(send, error)
        return
    headers = encode_headers({"x-request-id": public_request_id(new_request_id())})
    if asked:
        await send_json(send, 200, _model(quotes[0]), headers)
    else:
        body = {"object": "list", "data": [_model(quote) for quote in quotes]}
        await send_json(send, 200, body, headers)


def _quotes(identity: KeyIdentity, asked: str) -> list[Quote]:
    organization_id = identity.organization_id
    try:
        if asked:
            return [billing.facade.quote(organization_id, asked, ServiceTier.INTERACTIVE)]
        return [_quote(organization_id, offer) for offer in billing.facade.offers(organization_id)]
    except ModelNotFound:
        raise errors.model_not_found(asked) from None


def _quote(organization_id: Any, offer: Offer) -> Quote:
    return billing.facade.quote(organization_id, offer.public_id, ServiceTier.INTERACTIVE)


def _model(quote: Quote) -> dict[str, Any]:
    offer = quote.offer
    return {
        "id": offer.public_id,
        "object": "model",
        "created": int(offer.created_at.timestamp()),
        "owned_by": offer.owned_by,
        "context_length": offer.context_tokens_max,
        "max_completion_tokens": offer.output_tokens_max,
        # One pico-unit per token is one micro-unit per million tokens: strings, per token.
        "pricing": {
            "prompt": decimal_string(quote.input_micros_per_mtok),
            "completion": decimal_string(quote.output_micros_per_mtok),
            "input_cache_read": decimal_string(quote.cached_input_micros_per_mtok),
        },
    }
