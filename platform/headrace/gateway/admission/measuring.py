"""How many tokens a request is, and may become: its prompts encoded, its answers bounded.

Knows the model's vocabulary and context, not prices: admission calls it before it holds anything.
Raises ApiError 400 for what cannot fit, and encodes no more than it takes to see that.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings

from billing.contracts import Offer
from headrace import errors
from headrace.gateway.orders import Conversation, Order, Prompt, TokenIds
from headrace.telemetry import metrics
from inference.contracts import ModelLimits
from inference.tokenizer.prompt import PromptEncoder, PromptInvalid

PROMPT_CHARS_PER_TOKEN_MAX = 64
"""Text longer than this per token of context is refused without encoding it."""
PROMPTS_CHARS_PER_TOKEN_MAX = 16
"""The same for all prompts of a request that has several, per token of PROMPTS_TOKENS_MAX."""
THREADED_ENCODE_CHARS = 4_000
"""Longer prompts are encoded in a thread: 500,000 characters take 0.2 to 0.4 s of CPU."""


@dataclass(frozen=True, slots=True)
class Measured:
    """`prompt_tokens` over all prompts, each counted once; `output_tokens_max` over all answers."""

    prompts: tuple[tuple[int, ...], ...]
    prompt_tokens: int
    max_tokens: int
    """Of each answer; 0 where embeddings are asked for."""
    output_tokens_max: int


async def measure(
    encoder: PromptEncoder, order: Order, offer: Offer, limits: ModelLimits
) -> Measured:
    """Encodes the prompts; raises ApiError 400 for what does not fit model or vocabulary."""
    context_tokens_max = min(offer.context_tokens_max, limits.request_tokens_max())
    if order.dimensions not in (None, limits.embedding_dimensions):
        raise errors.invalid("'dimensions' must be the model's own, or absent.", "dimensions")
    _check_vocabulary(order, limits.vocab_size)
    _check_vectors(order, limits.embedding_dimensions)
    _check_length(order, context_tokens_max)
    if is_long(order):
        prompts = await asyncio.to_thread(_encode, encoder, order)
    else:
        prompts = _encode(encoder, order)
    if not all(prompts):
        raise errors.invalid(
            f"'{order.blame.prompt}' holds a prompt without any token.", order.blame.prompt
        )
    lengths = [len(prompt) for prompt in prompts]
    each_max = max_tokens(order, max(lengths), context_tokens_max, offer.output_tokens_max)
    return Measured(tuple(prompts), sum(lengths), each_max, each_max * order.sequences)


def is_long(order: Order) -> bool:
    """Whether encoding it takes so long that limits should be asked first."""
    return chars(order) > THREADED_ENCODE_CHARS


def chars(order: Order) -> int:
    """What there is to encode, in characters."""
    return sum(map(_chars, order.prompts))


def max_tokens(order: Order, longest_tokens: int, context: int, answer_tokens_max: int) -> int:
    """The most tokens that one answer may have, 0 for embeddings; ApiError 400 when none. Pure."""
    left = context - longest_tokens
    if order.sampling is None:
        if left < 0:
            raise errors.context_length_exceeded(context, longest_tokens, order.blame.prompt)
        return 0
    if left < 1:
        raise errors.context_length_exceeded(context, longest_tokens + 1, order.blame.prompt)
    asked = order.sampling.max_tokens if order.max_tokens_asked else left
    if asked > left:
        raise errors.context_length_exceeded(
            context, longest_tokens + asked, order.blame.max_tokens
        )
    granted = _with_room_for_logprobs(order, min(asked, answer_tokens_max))
    if order.sampling.min_tokens > granted:
        raise errors.invalid(
            f"'min_tokens' must not be above the {granted} tokens that an answer may have.",
            "min_tokens",
        )
    return granted


def _with_room_for_logprobs(order: Order, granted: int) -> int:
    """An answer's limit, lowered where none was asked for; ApiError 400 where one was."""
    if order.sampling is None or order.sampling.logprobs is None:
        return granted
    tokens_max = settings.LOGPROBS_MAX // (order.sampling.logprobs + 1) // order.sequences
    if granted <= tokens_max:
        return granted
    metrics.LIMIT_HITS.labels("logprobs").inc()
    if order.max_tokens_asked or tokens_max < 1:
        raise errors.invalid(
            f"At most {settings.LOGPROBS_MAX} log probabilities can be asked for: lower "
            f"'{order.blame.max_tokens}', the choices or the alternatives.",
            "logprobs",
        )
    return tokens_max


def _check_vocabulary(order: Order, vocab_size: int) -> None:
    named: list[tuple[str, Sequence[int]]] = [
        (order.blame.prompt, prompt.ids) for prompt in order.prompts if isinstance(prompt, TokenIds)
    ]
    if order.sampling is not None:
        named.append(("stop_token_ids", order.sampling.stop_token_ids))
        named.append(("logit_bias", [token_id for token_id, _ in order.sampling.logit_bias]))
    for param, token_ids in named:
        if any(token_id >= vocab_size for token_id in token_ids):
            raise errors.invalid(
                f"Token ids in '{param}' must be below the vocabulary's {vocab_size} entries.",
                param,
            )


def _check_vectors(order: Order, dimensions: int) -> None:
    inputs_max = settings.EMBEDDING_NUMBERS_MAX // dimensions
    if order.sampling is None and len(order.prompts) > inputs_max:
        metrics.LIMIT_HITS.labels("embedding_numbers").inc()
        raise errors.invalid(
            f"At most {inputs_max} inputs of {dimensions} dimensions can be embedded at once.",
            order.blame.prompt,
        )


def _check_length(order: Order, context_tokens_max: int) -> None:
    chars_max = context_tokens_max * PROMPT_CHARS_PER_TOKEN_MAX
    longest = max(map(_chars, order.prompts))
    if longest > chars_max:
        metrics.LIMIT_HITS.labels("prompt_chars").inc()
        raise errors.context_length_exceeded(
            context_tokens_max, longest // PROMPT_CHARS_PER_TOKEN_MAX, order.blame.prompt
        )
    if (
        len(order.prompts) > 1
        and chars(order) > settings.PROMPTS_TOKENS_MAX * PROMPTS_CHARS_PER_TOKEN_MAX
    ):
        raise _too_many_tokens(order)


def _too_many_tokens(order: Order) -> errors.ApiError:
    metrics.LIMIT_HITS.labels("prompts_tokens").inc()
    return errors.invalid(
        f"All prompts together may have {settings.PROMPTS_TOKENS_MAX} tokens.", order.blame.prompt
    )


def _chars(prompt: Prompt) -> int:
    match prompt:
        case Conversation(messages):
            return sum(len(message.content) for message in messages)
        case str():
            return len(prompt)
        case TokenIds():
            return 0


def _encode(encoder: PromptEncoder, order: Order) -> list[tuple[int, ...]]:
    prompts: list[tuple[int, ...]] = []
    tokens = 0
    try:
        for prompt in order.prompts:
            prompts.append(_ids(encoder, prompt))
            tokens += len(prompts[-1])
            if len(order.prompts) > 1 and tokens > settings.PROMPTS_TOKENS_MAX:
                raise _too_many_tokens(order)
    except PromptInvalid as error:
        raise errors.invalid(str(error), order.blame.prompt) from None
    return prompts


def _ids(encoder: PromptEncoder, prompt: Prompt) -> tuple[int, ...]:
    match prompt:
        case Conversation(messages):
            return tuple(encoder.encode_chat(messages))
        case str():
            return tuple(encoder.encode_text(prompt))
        case TokenIds(ids):
            return ids
