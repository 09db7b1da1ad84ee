"""What a job may ask for, and how its requests are worded."""

import json
from typing import Any

import pytest

from batch_jobs.contracts import InputInvalid
from batch_jobs.summaries.asking import instruction_of, request_body
from batch_jobs.summaries.options import SummaryOptions, canonical, digest, parse_options

SCHEMA = {"type": "object", "properties": {"gist": {"type": "string"}}, "required": ["gist"]}


def test_options_survive_being_kept_as_json() -> None:
    options = parse_options(
        {"model": "small", "length": "long", "style": "dry", "schema": SCHEMA, "language": None}
    )

    assert options.tokens_max == 768
    assert parse_options(json.loads(json.dumps(options.to_json()))) == options
    assert "language" not in options.to_json()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "model"),
        ({"model": " "}, "model"),
        ({"model": "m", "length": "endless"}, "length"),
        ({"model": "m", "tokens_max": True}, "tokens_max"),
        ({"model": "m", "tokens_max": 7}, "tokens_max"),
        ({"model": "m", "tokens_max": "96"}, "tokens_max"),
        ({"model": "m", "instruction": "x" * 8001}, "instruction"),
        ({"model": "m", "style": "a\0b"}, "style"),
        ({"model": "m", "language": "\ud800"}, "language"),
        ({"model": "m", "schema": "{}"}, "schema"),
        ({"model": "m", "schema": {"const": float("nan")}}, "schema"),
        ({"model": "m", "schema": {"const": "\udfff"}}, "schema"),
        ({"model": "m", "schema": {"const": 2**63}}, "schema"),
        ({"model": "m", "schema": {"enum": [[-(2**63) - 1]]}}, "schema"),
        ({"model": "m", "schema": {"const": 10**5000}}, "schema"),
        ({"model": "m", "schema": {"const": 1e300}}, "schema"),
        ({"model": "m", "schema": {"const": 1e-300}}, "schema"),
        ({"model": "m", "temperature": 1}, "temperature"),
    ],
)
def test_a_refusal_names_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InputInvalid, match=rf"^{field}: "):
        parse_options(fields)


def test_a_digest_changes_with_whatever_changes_the_summary_and_with_nothing_else() -> None:
    base: dict[str, Any] = {"model": "small", "schema": SCHEMA}
    same: list[dict[str, Any]] = [
        base | {"length": "short"},
        base | {"text_field": "body", "id_field": "key"},
        {"schema": dict(reversed(SCHEMA.items())), "model": "small"},
    ]
    other = [
        base | {"model": "large"},
        base | {"length": "medium"},
        base | {"tokens_max": 95},
        base | {"instruction": "Say it shorter."},
        base | {"language": "German"},
        base | {"style": "dry"},
        {"model": "small"},
    ]

    wanted = digest(parse_options(base), "text")
    assert {digest(parse_options(fields), "text") for fields in same} == {wanted}
    different = {digest(parse_options(fields), "text") for fields in other}
    assert len(different | {wanted, digest(parse_options(base), "text ")}) == len(other) + 2
    assert canonical(parse_options(base)) == canonical(parse_options(same[1]))


def test_the_instruction_comes_first_so_that_all_texts_share_it() -> None:
    options = SummaryOptions("small", instruction="Say what it is.", language="French", style="dry")
    bodies = [request_body(options, text, merging=False) for text in ("one\n", "two")]

    (first,), (second,) = (body["messages"] for body in bodies)
    said = instruction_of(options, merging=False)
    assert first == {"role": "user", "content": f"{said}\n\none"}
    assert second["content"] == f"{said}\n\ntwo"
    for words in ("Say what it is.", "French", "dry"):
        assert words in said
    assert bodies[0]["temperature"] == 0
    assert bodies[0]["max_tokens"] == options.tokens_max
    assert "response_format" not in bodies[0]


def test_a_merge_says_what_its_text_is() -> None:
    options = SummaryOptions("small")
    leaf, merge = (
        request_body(options, "text", merging=merging)["messages"][0]["content"]
        for merging in (False, True)
    )

    assert merge != leaf
    assert "parts of one text" in merge
    assert instruction_of(options, merging=False) in merge


def test_a_schema_becomes_a_response_format_that_the_gateway_reads() -> None:
    from headrace.gateway.openai.chat_request import parse_chat_request

    body = request_body(parse_options({"model": "m", "schema": SCHEMA}), "text", merging=False)

    assert body["response_format"]["json_schema"]["schema"] == SCHEMA
    order = parse_chat_request(body)
    assert order.sampling is not None and order.sampling.grammar is not None
