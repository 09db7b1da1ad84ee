"""OpenAI's plain completion request: from JSON to an Order, or a 400 that names the field.

The prompt is text or token ids, and no template stands around it; several prompts make several
sequences of one request.
"""

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from headrace import errors
from headrace.gateway.openai.fields import (
    body_of,
    boolean,
    choices,
    end_user,
    include_usage,
    integer,
    metadata,
    model,
    prompts,
    refuse_unless_default,
)
from headrace.gateway.openai.sampling import sampling
from headrace.gateway.orders import Blame, Order
from inference.contracts import TOKENS_MAX, TOP_LOGPROBS_MAX

MAX_TOKENS_DEFAULT = 16
"""OpenAI's, for this endpoint."""

_UNSUPPORTED_UNLESS: Mapping[str, tuple[Any, ...]] = {"echo": (False,), "suffix": ("",)}


def parse_completions_request(payload: Any) -> Order:
    """Validates a decoded JSON body; raises ApiError 400."""
    body = body_of(payload)
    refuse_unless_default(body, _UNSUPPORTED_UNLESS)
    answers = choices(body)
    if body.get("best_of") is not None and integer(body, "best_of", 1, TOKENS_MAX) != answers:
        raise errors.invalid("'best_of' must equal 'n': all answers are returned.", "best_of")
    max_tokens = integer(body, "max_tokens", 1, TOKENS_MAX) or MAX_TOKENS_DEFAULT
    logprobs = integer(body, "logprobs", 0, TOP_LOGPROBS_MAX)
    params, grammar_param = sampling(body, max_tokens, logprobs)
    stream = boolean(body, "stream")
    return Order(
        model=model(body),
        prompts=prompts(body, "prompt", settings.COMPLETION_PROMPTS_MAX),
        sampling=params,
        blame=Blame("prompt", "max_tokens", grammar_param),
        choices=answers,
        seed_asked=body.get("seed") is not None,
        stream=stream,
        include_usage=stream and include_usage(body),
        end_user=end_user(body),
        metadata=metadata(body),
    )
