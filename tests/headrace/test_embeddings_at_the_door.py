"""Embeddings at the public door, with the stock client."""

import math
from typing import Any

import pytest

from billing.facade import cost_pico
from tests import books
from tests.house import LiveHouse, Tenant
from tests.prompts import long_text

TEXTS = ["The mill stands by the river.", "A mill beside a river.", "Quarterly tax return form"]


@pytest.fixture
def acme(house: LiveHouse) -> Tenant:
    return house.new_tenant()


def embed(house: LiveHouse, tenant: Tenant, given: Any, **fields: Any) -> list[list[float]]:
    answer = house.client(tenant.secret).embeddings.create(
        model=house.model, input=given, **{"encoding_format": "float", **fields}
    )
    assert [entry.index for entry in answer.data] == list(range(len(answer.data)))
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0
    return [entry.embedding for entry in answer.data]


def cosine(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_vectors_have_length_one_and_near_texts_are_nearer(house: LiveHouse, acme: Tenant) -> None:
    mill, other_mill, tax = embed(house, acme, TEXTS)

    assert len(mill) == 576
    for vector in (mill, other_mill, tax):
        assert math.isclose(cosine(vector, vector), 1.0, abs_tol=1e-5)
    assert cosine(mill, other_mill) > cosine(mill, tax)


def test_the_same_text_has_the_same_vector_alone_or_among_others(
    house: LiveHouse, acme: Tenant
) -> None:
    alone = embed(house, acme, TEXTS[0])[0]
    among = embed(house, acme, [TEXTS[2], TEXTS[0], TEXTS[0]])

    assert among[1] == pytest.approx(alone, abs=1e-5)
    assert among[2] == pytest.approx(alone, abs=1e-5)


def test_an_answer_too_large_to_be_written_at_once_is_the_same(
    house: LiveHouse, acme: Tenant
) -> None:
    alone = embed(house, acme, TEXTS[0])[0]
    many = embed(house, acme, [TEXTS[0]] * 150)  # 345,600 bytes of vectors

    assert len(many) == 150
    assert many[149] == pytest.approx(alone, abs=1e-5)


def test_a_text_longer_than_a_step_is_one_vector(house: LiveHouse, acme: Tenant) -> None:
    text = long_text(600)
    first, again = (embed(house, acme, text)[0] for _ in range(2))

    assert again == pytest.approx(first, abs=1e-5)


def test_base64_which_the_sdk_asks_for_itself_carries_the_same_numbers(
    house: LiveHouse, acme: Tenant
) -> None:
    # Not strict: the SDK validates before it decodes what it asked for.
    client = house.client(acme.secret, _strict_response_validation=False)
    decoded = client.embeddings.create(model=house.model, input=TEXTS[0]).data[0].embedding
    with house.http(acme.secret) as http:
        body = {"model": house.model, "input": TEXTS[0], "encoding_format": "base64"}
        raw = http.post("/v1/embeddings", json=body).json()["data"][0]["embedding"]

    assert isinstance(raw, str)
    assert decoded == pytest.approx(embed(house, acme, TEXTS[0])[0], abs=1e-7)


def test_input_tokens_are_charged_and_nothing_else(house: LiveHouse, acme: Tenant) -> None:
    answer = house.client(acme.secret).embeddings.create(
        model=house.model, input=[[504, 3575], [282]], encoding_format="float"
    )

    assert answer.usage.prompt_tokens == 3
    (event,) = books.events(acme)
    counts = books.counts(event)
    assert (counts.prompt_tokens, counts.output_tokens) == (3, 0)
    assert event["charge_pico"] == cost_pico(books.quote(house, acme), counts)
    assert books.holds(acme) == []
    assert event["finish_reason"] == "stop"
