"""How tokens shall be chosen and what they must match: which values pass, which field is blamed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ApiError
from headrace.gateway.openai.sampling import sampling
from inference.contracts import GRAMMAR_CHARS_MAX, Grammar, GrammarKind, SamplingParams

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
SOURCE = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA, separators=(",", ":")))
ANY_OBJECT = Grammar(GrammarKind.JSON_OBJECT)
DIGITS = Grammar(GrammarKind.REGEX, r"\d+")


def parsed(**fields: Any) -> SamplingParams:
    return sampling(fields, 100, None)[0]


def refusal(fields: dict[str, Any]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        sampling(fields, 100, None)
    assert caught.value.status == 400
    return caught.value


def named(schema: Any = SCHEMA, **fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, **fields}}


def deep(levels: int) -> Any:
    schema: Any = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def test_every_field_reaches_the_engine() -> None:
    fields = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.05,
        "seed": 7,
        "presence_penalty": 1,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.2,
        "ignore_eos": True,
        "min_tokens": 3,
    }

    assert parsed(
        **fields, logit_bias={"5": -100, "7": 1.5}, stop="x", stop_token_ids=[3], top_logprobs=0
    ) == SamplingParams(
        100,
        **fields,  # type: ignore[arg-type]  # of several types
        logit_bias=((5, -100.0), (7, 1.5)),
        stop=("x",),
        stop_token_ids=(3,),
    )


def test_a_grammar_takes_min_tokens_but_no_ignore_eos() -> None:
    assert parsed(guided_regex=DIGITS.source, min_tokens=3, ignore_eos=False).min_tokens == 3
    assert refusal({"guided_json": SCHEMA, "ignore_eos": True}).param == "ignore_eos"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 2.1),
        ("temperature", -0.1),
        ("temperature", "hot"),
        ("temperature", float("nan")),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_k", -2),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("seed", 1.5),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("frequency_penalty", True),
        ("repetition_penalty", 0),
        ("repetition_penalty", 0.009),
        ("repetition_penalty", 11),
        ("min_tokens", -1),
        ("min_tokens", 101),
        ("ignore_eos", 1),
        ("logit_bias", [5]),
        ("logit_bias", {"Paris": 1}),
        ("logit_bias", {"-1": 1}),
        ("logit_bias", {"05": 1}),
        ("logit_bias", {"9" * 5000: 1}),
        ("logit_bias", {"5": 101}),
        ("logit_bias", {"5": float("nan")}),
        ("logit_bias", {"5": "1"}),
        ("logit_bias", {str(n): 0 for n in range(301)}),
        ("stop", ["a", "b", "c", "d", "e"]),
        ("stop", [""]),
        ("stop", 3),
        ("stop", "x" * 257),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", ["a"]),
        ("stop_token_ids", [True]),
        ("guided_regex", ""),
        ("guided_regex", 5),
        ("guided_json", ""),
        ("guided_json", "{"),
        ("guided_json", "[1]"),
        ("guided_json", "\ud800"),
        ("guided_json", True),
        ("guided_json", deep(40)),
        ("guided_json", "[" * 60_000),
        ("guided_json", {"enum": ["x" * GRAMMAR_CHARS_MAX]}),
        ("guided_choice", ["a"]),
        ("guided_grammar", 'root ::= "a"'),
        ("structured_outputs", "json"),
        ("structured_outputs", {}),
        ("structured_outputs", {"json": SCHEMA, "regex": "a"}),
        ("structured_outputs", {"yaml": "a"}),
        ("response_format", "json_object"),
        ("response_format", {"type": "xml"}),
        ("response_format", {}),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: Any) -> None:
    assert refusal({field: value}).param == field


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": named(None)}, "response_format.json_schema.schema"),
        ({"response_format": named(name="a b")}, "response_format.json_schema.name"),
        ({"response_format": named(name=None)}, "response_format.json_schema.name"),
        ({"response_format": named(strict="yes")}, "response_format.json_schema.strict"),
        ({"response_format": named(deep(40))}, "response_format.json_schema.schema"),
        ({"structured_outputs": {"json": ""}}, "structured_outputs.json"),
        ({"structured_outputs": {"regex": ""}}, "structured_outputs.regex"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object"),
        ({"structured_outputs": {"choice": ["a"]}}, "structured_outputs.choice"),
        ({"guided_regex": "a", "guided_json": SCHEMA}, "guided_regex"),
        ({"response_format": named(), "structured_outputs": {"regex": "a"}}, "structured_outputs"),
    ],
)
def test_a_grammar_that_is_none_or_two_is_refused_where_it_stands(
    fields: dict[str, Any], param: str
) -> None:
    assert refusal(fields).param == param


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, ANY_OBJECT),
        ({"response_format": named(strict=True)}, SOURCE),
        ({"response_format": named(strict=None, description="d")}, SOURCE),
        ({"response_format": {"type": "text"}, "guided_json": SCHEMA}, SOURCE),
        ({"guided_json": json.dumps(SCHEMA)}, SOURCE),
        ({"guided_regex": r"\d+"}, DIGITS),
        ({"structured_outputs": {"json": SCHEMA}}, SOURCE),
        ({"structured_outputs": {"regex": r"\d+", "json": None}}, DIGITS),
        ({"structured_outputs": {"json_object": True}}, ANY_OBJECT),
    ],
)
def test_each_way_to_ask_for_a_grammar_means_the_same(
    fields: dict[str, Any], expected: Grammar | None
) -> None:
    assert parsed(**fields).grammar == expected


def test_a_negative_seed_is_a_seed() -> None:
    assert parsed(seed=-1).seed == 2**63 - 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3)
    ),
    max_leaves=8,
)
NAMES = [*SamplingParams.__slots__, "response_format", "structured_outputs", "guided_json"]


@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4))
def test_no_json_breaks_the_reading(fields: dict[str, Any]) -> None:
    refused = None
    try:
        sampling(fields, 100, None)
    except ApiError as error:
        refused = error

    assert refused is None or (refused.status == 400 and refused.param)
