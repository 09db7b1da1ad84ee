"""OpenAI's chat completion request: from JSON to a ChatOrder, or a 400 that names the field.

Unknown fields are ignored, as OpenAI's own clients and the tools built on them send many. A known
field that would change the answer and is not supported yet is refused unless at its default.
"""

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from headrace import errors
from headrace.gateway.orders import ChatOrder
from inference.contracts import (
    SEED_BITS,
    STOP_STRING_CHARS_MAX,
    STOP_STRINGS_MAX,
    STOP_TOKEN_IDS_MAX,
)
from inference.tokenizer.prompt import ChatMessage

_TOKENS_CEILING = 2**31
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

_UNSUPPORTED_UNLESS: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "min_tokens": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "web_search_options": (),
}
"""Known fields that would change the answer, with the values that ask for nothing."""


def parse_chat_request(payload: Any) -> ChatOrder:
    """Validates a decoded JSON body; raises ApiError 400."""
    if not isinstance(payload, dict):
        raise errors.invalid("The request body must be a JSON object.", None, "invalid_type")
    for name, defaults in _UNSUPPORTED_UNLESS.items():
        value = payload.get(name)
        if value is not None and not any(_same(value, default) for default in defaults):
            raise errors.unsupported(name)
    max_tokens, max_tokens_param = _max_tokens(payload)
    stream = _boolean(payload, "stream")
    return ChatOrder(
        model=_model(payload),
        messages=_messages(payload.get("messages")),
        max_tokens=max_tokens,
        max_tokens_param=max_tokens_param,
        temperature=_number(payload, "temperature", 1.0, 0.0, 2.0),
        top_p=_top_p(payload),
        top_k=_top_k(payload),
        seed=_seed(payload),
        stop=_stop(payload.get("stop")),
        stop_token_ids=_stop_token_ids(payload.get("stop_token_ids")),
        stream=stream,
        include_usage=stream and _include_usage(payload.get("stream_options")),
    )


def _same(value: Any, default: Any) -> bool:
    # True == 1 in Python, but `n: true` is not `n: 1`.
    return isinstance(value, bool) == isinstance(default, bool) and bool(value == default)


def _model(payload: dict[str, Any]) -> str:
    model = payload.get("model")
    if model is None:
        raise errors.invalid("You must provide a model parameter.", "model", "missing_field")
    if not isinstance(model, str) or not model:
        raise errors.invalid("'model' must be a non-empty string.", "model", "invalid_type")
    return model


def _messages(value: Any) -> tuple[ChatMessage, ...]:
    if not isinstance(value, list):
        code = "missing_field" if value is None else "invalid_type"
        raise errors.invalid("'messages' must be an array.", "messages", code)
    if not value:
        raise errors.invalid("'messages' must not be empty.", "messages", "empty_array")
    if len(value) > settings.MESSAGES_MAX:
        raise errors.invalid(
            f"'messages' has more than {settings.MESSAGES_MAX} entries.", "messages"
        )
    return tuple(_message(message, f"messages[{i}]") for i, message in enumerate(value))


def _message(value: Any, param: str) -> ChatMessage:
    if not isinstance(value, dict):
        raise errors.invalid(f"'{param}' must be an object.", param, "invalid_type")
    role = value.get("role")
    if role in ("tool", "function") or value.get("tool_calls") or value.get("function_call"):
        raise errors.unsupported(f"{param}.role" if role in ("tool", "function") else param)
    if not isinstance(role, str) or role not in _ROLES:
        raise errors.invalid(f"'{param}.role' must be one of {', '.join(_ROLES)}.", f"{param}.role")
    return ChatMessage(_ROLES[role], _content(value.get("content"), f"{param}.content"))


def _content(value: Any, param: str) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise errors.invalid(
            f"'{param}' must be a string or an array of text parts.", param, "invalid_type"
        )
    texts: list[str] = []
    for i, part in enumerate(value):
        if not isinstance(part, dict):
            raise errors.invalid(f"'{param}[{i}]' must be an object.", param, "invalid_type")
        if part.get("type") != "text":
            raise errors.unsupported(f"{param}[{i}].type")
        text = part.get("text")
        if not isinstance(text, str):
            raise errors.invalid(f"'{param}[{i}].text' must be a string.", param, "invalid_type")
        texts.append(text)
    return "".join(texts)


def _integer(payload: dict[str, Any], name: str) -> int | None:
    value = payload.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise errors.invalid(f"'{name}' must be an integer.", name, "invalid_type")
    return value


def _number(
    payload: dict[str, Any], name: str, default: float, smallest: float, largest: float
) -> float:
    value = payload.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise errors.invalid(f"'{name}' must be a number.", name, "invalid_type")
    if not smallest <= value <= largest:
        raise errors.invalid(f"'{name}' must be between {smallest:g} and {largest:g}.", name)
    return float(value)


def _boolean(payload: dict[str, Any], name: str) -> bool:
    value = payload.get(name)
    if value is not None and not isinstance(value, bool):
        raise errors.invalid(f"'{name}' must be true or false.", name, "invalid_type")
    return bool(value)


def _max_tokens(payload: dict[str, Any]) -> tuple[int | None, str]:
    asked = {
        name: value
        for name in ("max_completion_tokens", "max_tokens")
        if (value := _integer(payload, name)) is not None
    }
    for name, value in asked.items():
        if not 1 <= value <= _TOKENS_CEILING:
            raise errors.invalid(f"'{name}' must be at least 1 and fit the model's context.", name)
    if len(set(asked.values())) > 1:
        raise errors.invalid(
            "'max_tokens' and 'max_completion_tokens' are both set and differ; send one.",
            "max_tokens",
        )
    name = next(iter(asked), "max_completion_tokens")
    return asked.get(name), name


def _top_p(payload: dict[str, Any]) -> float:
    top_p = _number(payload, "top_p", 1.0, 0.0, 1.0)
    if top_p == 0.0:
        raise errors.invalid("'top_p' must be above 0 and at most 1.", "top_p")
    return top_p


def _top_k(payload: dict[str, Any]) -> int:
    top_k = _integer(payload, "top_k") or 0
    if top_k == -1:  # vLLM's spelling of "all"
        return 0
    if not 0 <= top_k <= _TOKENS_CEILING:
        raise errors.invalid("'top_k' must be 0 (all), or positive.", "top_k")
    return top_k


def _seed(payload: dict[str, Any]) -> int | None:
    seed = _integer(payload, "seed")
    # OpenAI takes any 64-bit integer, negative ones too; the engine counts in 63 bits.
    return None if seed is None else seed % (1 << SEED_BITS)


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
        or any(isinstance(token, bool) or not isinstance(token, int) for token in value)
        or any(not 0 <= token < _TOKENS_CEILING for token in value)
    ):
        raise errors.invalid(
            f"'stop_token_ids' must be an array of at most {STOP_TOKEN_IDS_MAX} token ids.",
            "stop_token_ids",
        )
    return tuple(value)


def _include_usage(value: Any) -> bool:
    if value is None:
        return False
    if not isinstance(value, dict):
        raise errors.invalid("'stream_options' must be an object.", "stream_options")
    return _boolean(value, "include_usage")
