"""OpenAI's chat completion request: from JSON to an Order, or a 400 that names the field.

Unknown fields are ignored, as OpenAI's own clients and the tools built on them send many. A known
field that would change the answer and is not supported yet is refused unless at its default.
"""

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from headrace import errors
from headrace.gateway.openai.fields import (
    Body,
    body_of,
    boolean,
    choices,
    end_user,
    include_usage,
    integer,
    metadata,
    model,
    refuse_unless_default,
)
from headrace.gateway.openai.sampling import sampling
from headrace.gateway.orders import Blame, Conversation, Order
from inference.contracts import TOKENS_MAX, TOP_LOGPROBS_MAX
from inference.tokenizer.prompt import ChatMessage

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

_UNSUPPORTED_UNLESS: Mapping[str, tuple[Any, ...]] = {
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


def parse_chat_request(payload: Any) -> Order:
    """Validates a decoded JSON body; raises ApiError 400."""
    body = body_of(payload)
    refuse_unless_default(body, _UNSUPPORTED_UNLESS)
    max_tokens, max_tokens_param = _max_tokens(body)
    params, grammar_param = sampling(body, max_tokens, _logprobs(body))
    stream = boolean(body, "stream")
    return Order(
        model=model(body),
        prompts=(Conversation(_messages(body.get("messages"))),),
        sampling=params,
        blame=Blame("messages", max_tokens_param, grammar_param),
        choices=choices(body),
        max_tokens_asked=max_tokens is not None,
        seed_asked=body.get("seed") is not None,
        stream=stream,
        include_usage=stream and include_usage(body),
        end_user=end_user(body),
        metadata=metadata(body),
    )


def _max_tokens(body: Body) -> tuple[int | None, str]:
    asked = {
        name: value
        for name in ("max_completion_tokens", "max_tokens")
        if (value := integer(body, name, 1, TOKENS_MAX)) is not None
    }
    if len(set(asked.values())) > 1:
        raise errors.invalid(
            "'max_tokens' and 'max_completion_tokens' are both set and differ; send one.",
            "max_tokens",
        )
    name = next(iter(asked), "max_completion_tokens")
    return asked.get(name), name


def _logprobs(body: Body) -> int | None:
    """How many alternatives to report beside each token; None for no log probabilities at all."""
    top = integer(body, "top_logprobs", 0, TOP_LOGPROBS_MAX)
    if boolean(body, "logprobs"):
        return top or 0
    if top:
        raise errors.invalid("'top_logprobs' needs 'logprobs' to be true.", "top_logprobs")
    return None


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
