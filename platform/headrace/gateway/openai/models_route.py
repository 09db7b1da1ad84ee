"""`GET /v1/models` and `/v1/models/{id}`: what the calling key may use, with its prices.

A model is there under its own name and under each alias that the key's project has for it.
"""

from typing import Any
from urllib.parse import unquote

import billing.facade
from billing.contracts import ModelNotFound, ModelRetired, Quote, ServiceTier
from billing.facade import decimal_string
from headrace import errors
from headrace.gateway.admission.auth import identify
from headrace.gateway.admission.quotes import life_headers
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
from tenants.contracts import KeyIdentity, KeyScope

PREFIX = "/v1/models"


async def models(_runtime: GatewayRuntime, scope: Scope, _receive: Receive, send: Send) -> None:
    """The list, or the one model that the path names (its id may hold `/` and `:`)."""
    try:
        identity = await identify(scope, KeyScope.MODELS)
        asked = unquote(scope["path"][len(PREFIX) :].lstrip("/"))
        headers = {"x-request-id": public_request_id(new_request_id())}
        if asked:
            quote = await in_database(_quote, identity, asked)
            body = _model(asked, quote)
            headers |= life_headers(quote.offer)
        else:
            sold = await in_database(
                billing.facade.models_for_sale, identity.organization_id, identity.project_id
            )
            models_sold = [_model(name, quote) for name, quote in sold if _may_use(identity, quote)]
            body = {"object": "list", "data": models_sold}
    except errors.ApiError as error:
        await send_error(send, error)
        return
    await send_json(send, 200, body, encode_headers(headers))


def _quote(identity: KeyIdentity, asked: str) -> Quote:
    try:
        quote = billing.facade.quote(
            identity.organization_id, identity.project_id, asked, ServiceTier.INTERACTIVE
        )
    except ModelRetired as error:
        raise errors.model_retired(asked, error.successor) from None
    except ModelNotFound:
        raise errors.model_not_found(asked) from None
    if not _may_use(identity, quote):
        raise errors.model_not_found(asked)
    return quote


def _may_use(identity: KeyIdentity, quote: Quote) -> bool:
    return identity.rules.allow(quote.offer.public_id)


def _model(name: str, quote: Quote) -> dict[str, Any]:
    offer = quote.offer
    cache_write = quote.cache_write_micros_per_mtok
    assert cache_write is not None, "a quote of the catalog has all prices"
    return {
        "id": name,
        "object": "model",
        "created": int(offer.created_at.timestamp()),
        "owned_by": offer.owned_by,
        # What an alias stands for; the model's own name otherwise.
        "served_model": offer.public_id,
        "context_length": offer.context_tokens_max,
        "max_completion_tokens": offer.output_tokens_max,
        "deprecated": offer.deprecated_at is not None,
        "shutdown_date": offer.shutdown_at.date().isoformat() if offer.shutdown_at else None,
        "successor": offer.successor,
        # One pico-unit per token is one micro-unit per million tokens: strings, per token.
        "pricing": {
            "prompt": decimal_string(quote.input_micros_per_mtok),
            "completion": decimal_string(quote.output_micros_per_mtok),
            "input_cache_read": decimal_string(quote.cached_input_micros_per_mtok),
            "input_cache_write": decimal_string(cache_write),
        },
    }
