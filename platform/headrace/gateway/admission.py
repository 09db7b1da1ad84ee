"""May it run: price, context, minute limits and the hold, in that order.

Everything here happens before an engine sees the request. A refusal anywhere leaves nothing behind:
no hold, no reserved tokens, no charge.
"""

import asyncio
import secrets
from dataclasses import dataclass
from uuid import UUID

from django.db import DatabaseError, InterfaceError

import billing.facade
from billing.contracts import (
    HoldOutcome,
    HoldRefusal,
    HoldRequest,
    Quote,
    ServiceTier,
)
from headrace import errors
from headrace.gateway.auth import cache_salt
from headrace.gateway.database import DatabaseSilent, ended, in_database
from headrace.gateway.orders import Caller, ChatOrder
from headrace.gateway.rate_limits import LimitState, RateLimiter, refusal
from headrace.gateway.services import Services
from headrace.gateway.settle import void_until_done
from headrace.telemetry import metrics
from inference.contracts import SEED_BITS, GenerationRequest, Priority, SamplingParams
from inference.protocol import Hello
from inference.tokenizer.prompt import PromptEncoder, PromptInvalid

PROMPT_CHARS_PER_TOKEN_MAX = 64
"""Text longer than this per token of context is refused without encoding it."""
THREADED_ENCODE_CHARS = 4_000
"""Longer prompts are encoded in a thread: encoding takes about 1 ms per 4,000 characters."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that holds its money and its place, ready for an engine."""

    quote: Quote
    limits: LimitState | None
    """None for bulk work, which has no minute limits."""
    generation: GenerationRequest


async def encode(encoder: PromptEncoder, order: ChatOrder, context_tokens_max: int) -> list[int]:
    """The prompt's token ids; raises ApiError 400 for one that cannot fit or be rendered."""
    chars = sum(len(message.content) for message in order.messages)
    if chars > context_tokens_max * PROMPT_CHARS_PER_TOKEN_MAX:
        metrics.LIMIT_HITS.labels("prompt_chars").inc()
        raise errors.context_length_exceeded(
            context_tokens_max, chars // PROMPT_CHARS_PER_TOKEN_MAX, "messages"
        )
    try:
        if chars > THREADED_ENCODE_CHARS:
            return await asyncio.to_thread(encoder.encode_chat, order.messages)
        return encoder.encode_chat(order.messages)
    except PromptInvalid as error:
        raise errors.invalid(str(error), "messages") from None


def output_tokens_max(order: ChatOrder, quote: Quote, prompt_tokens: int, context: int) -> int:
    """The most tokens this request may generate; raises ApiError 400 when nothing fits. Pure."""
    left = context - prompt_tokens
    if left < 1:
        raise errors.context_length_exceeded(context, prompt_tokens + 1, "messages")
    if order.max_tokens is None:
        return min(left, quote.offer.output_tokens_max)
    if order.max_tokens > left:
        raise errors.context_length_exceeded(
            context, prompt_tokens + order.max_tokens, order.max_tokens_param
        )
    return min(order.max_tokens, quote.offer.output_tokens_max)


async def admit(caller: Caller, order: ChatOrder, services: Services, engine: Hello) -> Admission:
    """Prices, measures, reserves and holds; raises ApiError, with nothing left reserved or held."""
    quote = await services.quotes.quote(caller.organization_id, order.model, caller.tier)
    if quote.offer.public_id != engine.model:
        raise errors.overloaded("No engine serves this model right now; try again later.")
    if any(token >= engine.limits.vocab_size for token in order.stop_token_ids):
        raise errors.invalid(
            f"'stop_token_ids' must be below the vocabulary's {engine.limits.vocab_size} entries.",
            "stop_token_ids",
        )
    context = min(quote.offer.context_tokens_max, engine.limits.request_tokens_max())
    prompt_ids = await encode(services.encoder, order, context)
    output_max = output_tokens_max(order, quote, len(prompt_ids), context)
    limits = await _reserve(services.limiter, caller, len(prompt_ids) + output_max)
    try:
        await _hold(caller, order, quote, len(prompt_ids), output_max)
    except errors.ApiError:
        await release(services.limiter, caller)
        raise
    except (DatabaseError, InterfaceError) as error:
        await release(services.limiter, caller)
        # The answer may have been lost after the commit: a hold that stands is given back.
        services.spawn(_void_after(error, caller.request_id))
        raise errors.overloaded("The billing database is away; try again shortly.") from error
    return Admission(quote, limits, _generation(caller, order, prompt_ids, output_max))


async def _void_after(error: Exception, request_id: UUID) -> None:
    """A void must not overtake the hold it is for: it would find nothing to give back."""
    if isinstance(error, DatabaseSilent):
        await ended(error)
    await void_until_done(request_id)


async def _reserve(limiter: RateLimiter, caller: Caller, tokens: int) -> LimitState | None:
    if caller.limits is None:
        return None
    limits = await limiter.reserve(caller.organization_id, caller.request_id, tokens, caller.limits)
    if limits.refused:
        metrics.LIMIT_HITS.labels(limits.refused).inc()
        raise refusal(limits, tokens)
    return limits


async def release(limiter: RateLimiter, caller: Caller) -> None:
    """Gives back what `admit` reserved of the minute."""
    if caller.limits is not None:
        await limiter.release(caller.organization_id, caller.request_id)


async def _hold(
    caller: Caller, order: ChatOrder, quote: Quote, prompt_tokens: int, output_max: int
) -> None:
    with metrics.HOLD_SECONDS.time():
        outcomes: list[HoldOutcome] = await in_database(
            billing.facade.hold,
            [
                HoldRequest(
                    request_id=caller.request_id,
                    organization_id=caller.organization_id,
                    project_id=caller.project_id,
                    key_id=caller.key_id,
                    quote=quote,
                    model_asked=order.model,
                    prompt_tokens=prompt_tokens,
                    output_tokens_max=output_max,
                )
            ],
        )
    match outcomes[0].refusal:
        case None:
            return
        case HoldRefusal.KEY_REVOKED:
            raise errors.key_invalid()
        case HoldRefusal.PROJECT_ARCHIVED:
            raise errors.project_archived()
        case HoldRefusal.INSUFFICIENT_QUOTA:
            raise errors.insufficient_quota(
                "You exceeded your current quota: the prepaid balance does not cover this "
                "request. Top up, or lower max_completion_tokens."
            )
        case HoldRefusal.DAILY_TOKENS_EXCEEDED:
            raise errors.insufficient_quota(
                "You exceeded your daily token quota; it starts again at midnight UTC."
            )
        case HoldRefusal.STALE_QUOTE:
            raise errors.overloaded("Prices have just changed; try again.")
        case HoldRefusal.DUPLICATE:
            raise errors.duplicate_request()


def _generation(
    caller: Caller, order: ChatOrder, prompt_ids: list[int], output_max: int
) -> GenerationRequest:
    batch = caller.tier is ServiceTier.BATCH
    return GenerationRequest(
        request_id=caller.request_id.hex,
        prompt_ids=tuple(prompt_ids),
        sampling=SamplingParams(
            max_tokens=output_max,
            temperature=order.temperature,
            top_p=order.top_p,
            top_k=order.top_k,
            seed=secrets.randbits(SEED_BITS) if order.seed is None else order.seed,
            stop=order.stop,
            stop_token_ids=order.stop_token_ids,
        ),
        cache_salt=cache_salt(str(caller.organization_id)),
        priority=Priority.BATCH if batch else Priority.INTERACTIVE,
        # A bulk item has its own proof of delivery (its row); what the engine wrote must count.
        stream=order.stream or batch,
    )
