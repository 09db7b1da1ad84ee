"""What a chat completion body may say, and which field a refusal names."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from headrace.errors import ApiError
from headrace.gateway.openai.chat_request import parse_chat_request
from headrace.gateway.openai.completions_request import parse_completions_request
from headrace.gateway.openai.embeddings_request import parse_embeddings_request
from headrace.gateway.orders import Conversation, Order
from inference.contracts import SamplingParams
from inference.tokenizer.prompt import ChatMessage

HELLO = [{"role": "user", "content": "Hello"}]


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": HELLO, **fields}


def refusal(payload: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_chat_request(payload)
    assert caught.value.status == 400
    return caught.value


def sampling(order: Order) -> SamplingParams:
    assert order.sampling is not None
    return order.sampling


def messages(order: Order) -> tuple[ChatMessage, ...]:
    (conversation,) = order.prompts
    assert isinstance(conversation, Conversation)
    return conversation.messages


def test_an_ordinary_request_gets_openais_defaults() -> None:
    order = parse_chat_request(body())

    assert sampling(order) == SamplingParams(sampling(order).max_tokens)
    assert not order.max_tokens_asked
    assert not order.seed_asked
    assert not order.stream
    assert order.sequences == 1


def test_unknown_and_harmless_fields_are_ignored() -> None:
    order = parse_chat_request(
        body(prompt_cache_key="k", store=True, parallel_tool_calls=False, cache_salt="x")
    )

    assert order == parse_chat_request(body())


PARSERS = [
    pytest.param(parse_chat_request, {"messages": HELLO}, id="chat"),
    pytest.param(parse_completions_request, {"prompt": "Hello"}, id="completions"),
    pytest.param(parse_embeddings_request, {"input": "Hello"}, id="embeddings"),
]


@pytest.mark.parametrize(("parse", "asked"), PARSERS)
def test_every_dialect_says_whom_it_serves_and_what_for(
    parse: Callable[[Any], Order], asked: dict[str, Any]
) -> None:
    plain = {"model": "m", **asked}
    metadata = {"team": "red", "": "\N{LATIN SMALL LETTER E WITH ACUTE}" * 512}

    named = parse({**plain, "user": "ann", "metadata": metadata})
    safe = parse({**plain, "user": 5, "safety_identifier": "b" * 128})

    assert (parse(plain).end_user, parse(plain).metadata) == ("", {})
    assert (named.end_user, named.metadata) == ("ann", metadata)
    assert safe.end_user == "b" * 128


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("user", 5, "user"),
        ("user", "x" * 129, "user"),
        ("safety_identifier", "a\x00", "safety_identifier"),
        ("safety_identifier", "\udfff", "safety_identifier"),
        ("metadata", [], "metadata"),
        ("metadata", {str(n): "" for n in range(17)}, "metadata"),
        ("metadata", {"k" * 65: ""}, "metadata"),
        ("metadata", {"\x00": ""}, "metadata"),
        ("metadata", {"k": "x" * 513}, "metadata.k"),
        ("metadata", {"k": 5}, "metadata.k"),
    ],
)
@pytest.mark.parametrize(("parse", "asked"), PARSERS)
def test_end_users_and_metadata_out_of_bounds_are_refused(
    parse: Callable[[Any], Order], asked: dict[str, Any], field: str, value: Any, param: str
) -> None:
    with pytest.raises(ApiError) as caught:
        parse({"model": "m", **asked, field: value})

    assert (caught.value.status, caught.value.param) == (400, param)


def test_fields_at_their_defaults_ask_for_nothing() -> None:
    order = parse_chat_request(
        body(
            n=1,
            logprobs=False,
            presence_penalty=0,
            frequency_penalty=0.0,
            logit_bias={},
            response_format={"type": "text"},
            tools=[],
            tool_choice="none",
        )
    )

    assert order == parse_chat_request(body())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", [{"type": "function"}]),
        ("tool_choice", "required"),
        ("audio", {"voice": "x"}),
        ("web_search_options", {}),
    ],
)
def test_a_field_that_would_change_the_answer_is_refused_by_name(field: str, value: Any) -> None:
    error = refusal(body(**{field: value}))

    assert (error.code, error.param) == ("unsupported_parameter", field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0),
        ("n", 17),
        ("n", True),
        ("logprobs", 3),
        ("top_logprobs", 3),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("max_tokens", "10"),
        ("max_tokens", 2**40),
        ("max_completion_tokens", 0),
        ("stream", "yes"),
        ("model", ""),
        ("model", 5),
        ("messages", []),
        ("messages", "hi"),
        ("messages", None),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: Any) -> None:
    assert refusal(body(**{field: value})).param == field


def test_not_a_number_does_not_pass_as_a_number() -> None:
    payload = json.loads('{"model": "m", "messages": [], "temperature": NaN}')

    assert refusal({**payload, "messages": HELLO}).param == "temperature"


def test_two_different_output_limits_are_refused_and_two_equal_ones_agree() -> None:
    assert refusal(body(max_tokens=1, max_completion_tokens=738)).param == "max_tokens"
    agreed = parse_chat_request(body(max_tokens=7, max_completion_tokens=7))
    assert (sampling(agreed).max_tokens, agreed.max_tokens_asked) == (7, True)


def test_content_parts_of_text_are_joined_in_every_role() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    order = parse_chat_request(
        body(messages=[{"role": role, "content": parts} for role in ("developer", "user")])
    )

    assert [(m.role, m.content) for m in messages(order)] == [("system", "ab"), ("user", "ab")]


@pytest.mark.parametrize(
    "message",
    [
        "hi",
        {"role": "user"},
        {"role": "king", "content": "x"},
        {"role": "user", "content": 5},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "tool", "content": "x", "tool_call_id": "1"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
    ],
)
def test_a_message_of_another_shape_is_refused_where_it_stands(message: Any) -> None:
    error = refusal(body(messages=[*HELLO, message]))

    assert error.param is not None
    assert error.param.startswith("messages[1]")


@pytest.mark.parametrize(
    ("fields", "alternatives"),
    [
        ({}, None),
        ({"logprobs": False}, None),
        ({"logprobs": False, "top_logprobs": 0}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 5}, 5),
    ],
)
def test_logprobs_alone_asks_for_no_alternatives(
    fields: dict[str, Any], alternatives: int | None
) -> None:
    assert sampling(parse_chat_request(body(**fields))).logprobs == alternatives


def test_usage_is_included_only_on_streams_that_ask_for_it() -> None:
    options = {"include_usage": True}

    assert parse_chat_request(body(stream=True, stream_options=options)).include_usage
    assert not parse_chat_request(body(stream=False, stream_options=options)).include_usage
    assert not parse_chat_request(body(stream=True)).include_usage
