"""OpenAI's embedding request: from JSON to an Order without sampling, or a 400."""

from typing import Any

from django.conf import settings

from headrace import errors
from headrace.gateway.openai.fields import body_of, end_user, integer, metadata, model, prompts
from headrace.gateway.orders import Blame, Order
from inference.contracts import TOKENS_MAX


def parse_embeddings_request(payload: Any) -> Order:
    """Validates a decoded JSON body; raises ApiError 400."""
    body = body_of(payload)
    encoding = body.get("encoding_format") or "float"
    if encoding not in ("float", "base64"):
        raise errors.invalid("'encoding_format' must be float or base64.", "encoding_format")
    return Order(
        model=model(body),
        prompts=prompts(body, "input", settings.EMBEDDING_INPUTS_MAX),
        sampling=None,
        blame=Blame("input"),
        dimensions=integer(body, "dimensions", 1, TOKENS_MAX),
        embeddings_as_base64=encoding == "base64",
        end_user=end_user(body),
        metadata=metadata(body),
    )
