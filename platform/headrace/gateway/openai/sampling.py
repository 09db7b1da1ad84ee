"""How tokens shall be chosen: the fields that chat and plain completions share. Pure.

OpenAI's fields and vLLM's additions to them. Raises ApiError 400 that names the field.
"""

import re
from typing import Any

from headrace import errors
from headrace.gateway.openai.fields import (
    Body,
    any_integer,
    boolean,
    integer,
    is_token_id,
    number,
    positive_number,
)
from headrace.gateway.openai.grammar import grammar
from inference.contracts import (
    LOGIT_BIAS_ABS_MAX,
    LOGIT_BIASES_MAX,
    SEED_BITS,
    STOP_STRING_CHARS_MAX,
    STOP_STRINGS_MAX,
    STOP_TOKEN_IDS_MAX,
    TOKENS_MAX,
    SamplingParams,
)

REPETITION_PENALTY_MIN = 0.01
"""Nearer to 0, logits divided by it leave what a float can hold."""

_TOKEN_ID = re.compile(r"0|[1-9][0-9]{0,9}")


def sampling(
    body: Body, max_tokens: int | None, logprobs: int | None
) -> tuple[SamplingParams, str]:
    """How to choose tokens, and the field that asked for a grammar.

    `max_tokens` None leaves the largest there is, `seed` absent leaves 0.
    """
    rule, grammar_param = grammar(body)
    ignore_eos = boolean(body, "ignore_eos")
    if ignore_eos and rule is not None:
        # At the grammar's end nothing but an end token is allowed.
        raise errors.invalid(f"'ignore_eos' contradicts '{grammar_param}'.", "ignore_eos")
    min_tokens = integer(body, "min_tokens", 0, TOKENS_MAX) or 0
    if max_tokens is not None and min_tokens > max_tokens:
        raise errors.invalid("'min_tokens' must not be above the output limit.", "min_tokens")
    params = SamplingParams(
        max_tokens=TOKENS_MAX if max_tokens is None else max_tokens,
        temperature=number(body, "temperature", 1.0, 0.0, 2.0),
        top_p=positive_number(body, "top_p", 1.0, 1.0),
        top_k=_top_k(body),
        min_p=number(body, "min_p", 0.0, 0.0, 1.0),
        # OpenAI takes any 64-bit integer, negative ones too; the engine counts in 63 bits.
        seed=(any_integer(body, "seed") or 0) % (1 << SEED_BITS),
        presence_penalty=number(body, "presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=number(body, "frequency_penalty", 0.0, -2.0, 2.0),
        repetition_penalty=number(body, "repetition_penalty", 1.0, REPETITION_PENALTY_MIN, 10.0),
        logit_bias=_logit_bias(body.get("logit_bias")),
        logprobs=logprobs,
        stop=_stop(body.get("stop")),
        stop_token_ids=_stop_token_ids(body.get("stop_token_ids")),
        ignore_eos=ignore_eos,
        min_tokens=min_tokens,
        grammar=rule,
    )
    return params, grammar_param


def _top_k(body: Body) -> int:
    top_k = any_integer(body, "top_k") or 0
    if top_k == -1:  # vLLM's spelling of "all"
        return 0
    if not 0 <= top_k <= TOKENS_MAX:
        raise errors.invalid("'top_k' must be 0 (all), or positive.", "top_k")
    return top_k


def _logit_bias(value: Any) -> tuple[tuple[int, float], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise errors.invalid(
            "'logit_bias' must map token ids to numbers.", "logit_bias", "invalid_type"
        )
    if len(value) > LOGIT_BIASES_MAX:
        raise errors.invalid(f"'logit_bias' takes at most {LOGIT_BIASES_MAX} ids.", "logit_bias")
    biases = []
    for key, bias in value.items():
        if not _TOKEN_ID.fullmatch(key):
            raise errors.invalid("The keys of 'logit_bias' must be token ids.", "logit_bias")
        number_like = isinstance(bias, int | float) and not isinstance(bias, bool)
        if not number_like or not abs(bias) <= LOGIT_BIAS_ABS_MAX:
            raise errors.invalid(
                f"Each value of 'logit_bias' must be a number from {-LOGIT_BIAS_ABS_MAX:g} to "
                f"{LOGIT_BIAS_ABS_MAX:g}.",
                "logit_bias",
            )
        biases.append((int(key), float(bias)))
    return tuple(biases)


def _stop(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise errors.invalid("'stop' must be a string or an array of strings.", "stop")
    if len(stops) > STOP_STRINGS_MAX:
        raise errors.invalid(f"'stop' takes at most {STOP_STRINGS_MAX} strings.", "stop")
    if any(not 1 <= len(stop) <= STOP_STRING_CHARS_MAX for stop in stops):
        raise errors.invalid(
            f"Each stop string must have 1 to {STOP_STRING_CHARS_MAX} characters.", "stop"
        )
    return tuple(stops)


def _stop_token_ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    if (
        not isinstance(value, list)
        or len(value) > STOP_TOKEN_IDS_MAX
        or not all(map(is_token_id, value))
    ):
        raise errors.invalid(
            f"'stop_token_ids' must be an array of at most {STOP_TOKEN_IDS_MAX} token ids.",
            "stop_token_ids",
        )
    return tuple(value)
