"""What plain completions and embeddings take as prompts, and the fields of their own."""

from typing import Any

import pytest

from headrace.errors import ApiError
from headrace.gateway.openai.completions_request import parse_completions_request
from headrace.gateway.openai.embeddings_request import parse_embeddings_request
from headrace.gateway.orders import Order, TokenIds


def completions(**fields: Any) -> Order:
    return parse_completions_request({"model": "m", "prompt": "a", **fields})


def embeddings(**fields: Any) -> Order:
    return parse_embeddings_request({"model": "m", "input": "a", **fields})


PROMPTS: list[tuple[Any, Any]] = [
    ("a", ("a",)),
    (["a", "b"], ("a", "b")),
    ([1, 2], (TokenIds((1, 2)),)),
    ([[1], [2, 3]], (TokenIds((1,)), TokenIds((2, 3)))),
]
NOT_PROMPTS: list[Any] = [
    None,
    "",
    [],
    [""],
    [[]],
    5,
    {"a": 1},
    ["a", 1],
    [1, "a"],
    [[1], "a"],
    [-1],
    [1.0],
    [True],
    [[2**40]],
    [None],
    [[[1]]],
    ["a"] * 2049,
    [0] * 300_001,
]


@pytest.mark.parametrize(("value", "expected"), PROMPTS)
def test_prompts_come_in_four_shapes(value: Any, expected: Any) -> None:
    assert completions(prompt=value).prompts == expected
    assert embeddings(input=value).prompts == expected


@pytest.mark.parametrize("value", NOT_PROMPTS)
def test_anything_else_is_refused_by_name(value: Any) -> None:
    for parse, param in ((completions, "prompt"), (embeddings, "input")):
        with pytest.raises(ApiError) as caught:
            parse(**{param: value})

        assert (caught.value.status, caught.value.param) == (400, param)


def test_a_plain_completion_has_openais_defaults() -> None:
    order = completions()

    assert order.sampling is not None
    assert (order.sampling.max_tokens, order.sampling.logprobs, order.choices) == (16, None, 1)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"echo": True}, "unsupported_parameter"),
        ({"suffix": "end"}, "unsupported_parameter"),
        ({"best_of": 2}, "invalid_value"),
        ({"best_of": True}, "invalid_type"),
        ({"logprobs": True}, "invalid_type"),
        ({"logprobs": 21}, "invalid_value"),
        ({"max_tokens": 0}, "invalid_value"),
        ({"n": 17}, "invalid_value"),
    ],
)
def test_a_field_of_a_plain_completion_is_refused_by_name(
    fields: dict[str, Any], code: str
) -> None:
    with pytest.raises(ApiError) as caught:
        completions(**fields)

    assert (caught.value.code, caught.value.param) == (code, next(iter(fields)))


def test_harmless_fields_of_a_plain_completion_ask_for_nothing() -> None:
    assert completions(echo=False, suffix="", best_of=1) == completions()
    assert completions(n=2, best_of=2, prompt=["a", "b"]).sequences == 4


@pytest.mark.parametrize(
    "fields", [{"encoding_format": "hex"}, {"dimensions": 0}, {"dimensions": "576"}]
)
def test_a_field_of_an_embedding_is_refused_by_name(fields: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        embeddings(**fields)

    assert (caught.value.status, caught.value.param) == (400, next(iter(fields)))


def test_an_embedding_is_an_order_without_sampling() -> None:
    assert embeddings(user="u").sampling is None
    assert embeddings(encoding_format="base64").embeddings_as_base64
