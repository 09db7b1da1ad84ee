"""Requests at the public door that are known to take an engine down, to leave something behind, or
to be counted wrongly: each costs what it should, and its neighbours nothing."""

import json
from typing import Any

import httpx
import pytest

import tenants.facade
from tests import books
from tests.house import CREDIT_PICO, LiveHouse, Tenant, wait_until
from tests.prompts import STORY, chat, long_text

HELLO = chat("Hello")
VOCAB_SIZE = 49_152
NAMED = {"name": "n", "schema": {"type": "object"}}
IMPOSSIBLE = {"type": "string", "minLength": 5, "maxLength": 3}
"""No answer matches it."""

BAD_GRAMMARS: list[dict[str, Any]] = [
    {"response_format": {"type": "json_schema"}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
    {"response_format": {"type": "json_schema", "json_schema": NAMED | {"schema": ""}}},
    {"response_format": {"type": "json_schema", "json_schema": NAMED | {"schema": {"type": 5}}}},
    {"response_format": {"type": "json_schema", "json_schema": NAMED | {"schema": IMPOSSIBLE}}},
    {"response_format": {"type": "grammar", "grammar": "root ::= ("}},
    {"guided_json": ""},
    {"guided_json": "{"},
    {"guided_json": {"type": "nonsense"}},
    {"guided_json": {"$ref": "#/nowhere"}},
    {"guided_json": {"$ref": "https://example.com/schema.json"}},
    {"guided_json": {"enum": []}},
    {"guided_json": {"type": "string", "pattern": "("}},
    {"guided_regex": ""},
    {"guided_regex": "("},
    {"guided_regex": "a{4294967296}"},
    {"guided_grammar": "root ::= ("},
    {"guided_choice": []},
    {"structured_outputs": {}},
    {"structured_outputs": {"json": ""}},
    {"structured_outputs": {"json": {"type": "nonsense"}}},
    {"structured_outputs": {"json_object": False}},
    {"structured_outputs": {"regex": "["}},
    {"structured_outputs": {"grammar": "root ::= ("}},
    {"structured_outputs": {"choice": []}},
]
BAD_IDS: list[tuple[str, dict[str, Any]]] = [
    (path, fields)
    for path in ("chat/completions", "completions")
    for fields in (
        {"logit_bias": {str(VOCAB_SIZE): 5}},
        {"logit_bias": {"0": 1, str(2**40): -100}},
        {"logit_bias": {"-1": 5}},
        {"stop_token_ids": [VOCAB_SIZE]},
        {"stop_token_ids": [-1]},
        {"stop_token_ids": [2**40]},
    )
] + [
    ("completions", {"prompt": [VOCAB_SIZE]}),
    ("completions", {"prompt": [[5], [-1]]}),
    ("embeddings", {"input": [VOCAB_SIZE]}),
]


@pytest.fixture
def acme(house: LiveHouse) -> Tenant:
    return house.new_tenant()


def body(house: LiveHouse, path: str, **fields: Any) -> dict[str, Any]:
    asked: dict[str, dict[str, Any]] = {
        "chat/completions": {"messages": HELLO, "max_tokens": 1},
        "completions": {"prompt": "Hello", "max_tokens": 1},
        "embeddings": {"input": "Hello"},
    }
    return {"model": house.model, **asked[path], **fields}


def uncharged(tenant: Tenant) -> bool:
    balance = books.balance(tenant)
    return (balance.posted_pico, balance.held_pico) == (CREDIT_PICO, 0)


def test_no_grammar_that_is_none_hurts_more_than_its_own_request(
    house: LiveHouse, acme: Tenant
) -> None:
    neighbour = house.new_tenant()
    stream = house.client(neighbour.secret).chat.completions.create(
        model=house.model, messages=STORY, max_tokens=400, temperature=0, stream=True
    )
    next(iter(stream))
    answers: dict[str, httpx.Response] = {}
    with house.http(acme.secret) as client:
        for index, fields in enumerate(BAD_GRAMMARS):
            path = ("chat/completions", "completions")[index % 2]
            asked = body(house, path, stream=index % 3 == 0, **fields)
            answers[json.dumps(fields)] = client.post(f"/v1/{path}", json=asked)
    going_on = next(iter(stream)).choices[0].finish_reason
    stream.close()

    assert {fields: answer.status_code for fields, answer in answers.items()} == dict.fromkeys(
        answers, 400
    )
    for answer in answers.values():
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert going_on is None
    assert uncharged(acme)


def test_no_id_outside_the_vocabulary_reaches_a_step(house: LiveHouse, acme: Tenant) -> None:
    with house.http(acme.secret) as client:
        answers = [
            client.post(f"/v1/{path}", json=body(house, path, **fields)) for path, fields in BAD_IDS
        ]
        refused_free_of_charge = uncharged(acme)
        last = client.post(
            "/v1/completions",
            json=body(
                house,
                "completions",
                prompt=[VOCAB_SIZE - 1],
                logit_bias={str(VOCAB_SIZE - 1): -1},
                stop_token_ids=[VOCAB_SIZE - 1],
            ),
        )

    assert [answer.status_code for answer in answers] == [400] * len(BAD_IDS)
    assert refused_free_of_charge
    assert last.status_code == 200


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_a_stream_of_no_choices_is_refused_before_it_begins(
    house: LiveHouse, acme: Tenant, path: str
) -> None:
    with house.http(acme.secret) as client:
        answer = client.post(f"/v1/{path}", json=body(house, path, n=0, stream=True))

    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("application/json")


def test_after_its_error_event_a_stream_is_over(house: LiveHouse, acme: Tenant) -> None:
    asked = body(house, "chat/completions", messages=STORY, max_tokens=600, stream=True)
    frames: list[str] = []
    with (
        house.http(acme.secret) as client,
        client.stream("POST", "/v1/chat/completions", json=asked) as answer,
    ):
        for line in answer.iter_lines():
            if line:
                frames.append(line.removeprefix("data: "))
            if len(frames) == 3 and line:
                tenants.facade.revoke_key(acme.organization_id, acme.key_id, using="housekeeper")

    errors = [index for index, frame in enumerate(frames) if "error" in json.loads(frame)]
    assert errors == [len(frames) - 1]


def test_a_salt_in_the_body_opens_nobody_elses_cache(house: LiveHouse, acme: Tenant) -> None:
    """All with the same words and the same salt: who asks is all that tells them apart."""
    globex = house.new_tenant()
    salted = body(
        house,
        "chat/completions",
        messages=chat(long_text(90)),
        cache_salt="shared",
        prompt_cache_key="shared",
        user="shared",
        safety_identifier="shared",
    )
    cached = []
    for tenant in (acme, acme, globex):
        with house.http(tenant.secret) as client:
            usage = client.post("/v1/chat/completions", json=salted).json()["usage"]
        cached.append(usage["prompt_tokens_details"]["cached_tokens"])

    assert cached[0] == 0
    assert cached[1] > 100
    assert cached[2] == 0


def test_a_cut_stream_is_charged_by_class_though_no_usage_was_ever_sent(
    house: LiveHouse, acme: Tenant
) -> None:
    client = house.client(acme.secret)
    asked: dict[str, Any] = {"model": house.model, "messages": chat(long_text(90))}
    whole = client.chat.completions.create(**asked, max_tokens=1)
    assert whole.usage is not None
    stream = client.chat.completions.create(**asked, n=3, max_tokens=400, stream=True)
    request_id = stream.response.headers["x-request-id"]
    chunks = [next(iter(stream)) for _ in range(3)]
    stream.close()
    wait_until(lambda: not books.holds(acme))
    receipt = house.receipt(acme, request_id)
    tokens, prices = receipt["tokens"], receipt["price_micros_per_mtok"]

    assert all(chunk.usage is None for chunk in chunks)
    assert receipt["finish_reason"] == "cancelled"
    assert tokens["cached_input"] > 100
    assert tokens["uncached_input"] + tokens["cached_input"] == whole.usage.prompt_tokens
    assert 1 <= tokens["output"] < 3 * 400
    # The discount applies once, to the cached part alone.
    assert int(receipt["amount_pico"]) == (
        tokens["uncached_input"] * prices["input"]
        + tokens["cached_input"] * prices["cached_input"]
        + tokens["output"] * prices["output"]
    )
