"""Answers that must match a schema or an expression, with the stock client."""

import json
import re
from typing import Any

import pytest

from tests import books
from tests.house import LiveHouse, Tenant
from tests.prompts import chat

CITY = chat("Describe the capital of France as JSON.")
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "large": {"type": "boolean"}},
    "required": ["name", "large"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}


@pytest.fixture
def acme(house: LiveHouse) -> Tenant:
    return house.new_tenant()


def text(house: LiveHouse, tenant: Tenant, **fields: Any) -> str:
    answer = house.client(tenant.secret).chat.completions.create(
        model=house.model, messages=CITY, **{"temperature": 0, "max_tokens": 80, **fields}
    )
    assert answer.choices[0].finish_reason == "stop"
    return answer.choices[0].message.content or ""


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": FORMAT},
        {"extra_body": {"guided_json": SCHEMA}},
        {"extra_body": {"structured_outputs": {"json": json.dumps(SCHEMA)}}},
    ],
)
def test_a_schema_is_obeyed(house: LiveHouse, acme: Tenant, fields: dict[str, Any]) -> None:
    value = json.loads(text(house, acme, **fields))

    assert set(value) == {"name", "large"}
    assert isinstance(value["name"], str)
    assert isinstance(value["large"], bool)


def test_an_expression_is_obeyed_by_every_choice(house: LiveHouse, acme: Tenant) -> None:
    answer = house.client(acme.secret).chat.completions.create(
        model=house.model,
        messages=CITY,
        n=2,
        temperature=1,
        extra_body={"guided_regex": r"(yes|no): [0-9]{3}"},
    )

    for choice in answer.choices:
        assert re.fullmatch(r"(yes|no): [0-9]{3}", choice.message.content or "")


def test_what_a_grammar_forbids_is_no_infinity(house: LiveHouse, acme: Tenant) -> None:
    answer = house.client(acme.secret).chat.completions.create(
        model=house.model,
        messages=CITY,
        logprobs=True,
        top_logprobs=20,
        extra_body={"guided_regex": "[ab]"},
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None

    assert -9999.0 in [top.logprob for top in logprobs.content[0].top_logprobs]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"guided_regex": "("}, "guided_regex"),
        ({"guided_json": {"type": "nonsense"}}, "guided_json"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {"type": 5}},
                }
            },
            "response_format",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_grammar_that_cannot_be_compiled_is_a_400_and_costs_nothing(
    house: LiveHouse, acme: Tenant, fields: dict[str, Any], param: str, stream: bool
) -> None:
    body = {"model": house.model, "messages": CITY, "stream": stream, **fields}
    before = books.balance(acme)
    with house.http(acme.secret) as client:
        answer = client.post("/v1/chat/completions", json=body)

    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(param)
    assert books.balance(acme) == before
    assert books.events(acme) == []
