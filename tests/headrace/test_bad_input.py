"""What a client can get wrong: a clear error in OpenAI's shape, nothing charged, engine alive."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests import books
from tests.house import CREDIT_PICO, LiveHouse, Tenant
from tests.prompts import chat, long_text

HELLO = chat("Hello")


@pytest.fixture
def acme(house: LiveHouse) -> Iterator[Tenant]:
    """A tenant that must not have paid anything in the end."""
    tenant = house.new_tenant()
    yield tenant
    balance = books.balance(tenant)
    assert (balance.posted_pico, balance.held_pico) == (CREDIT_PICO, 0)
    assert books.events(tenant) == []


def post(
    house: LiveHouse,
    tenant: Tenant | None,
    content: bytes | Any,
    path: str = "/v1/chat/completions",
) -> httpx.Response:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    with house.http(tenant.secret if tenant else None) as client:
        answer = client.post(path, content=raw)
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"].startswith("req_")
    return answer


def error_of(answer: httpx.Response) -> tuple[int, str | None, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"messages": []}, "empty_array", "messages"),
        ({"max_tokens": 0}, "invalid_value", "max_tokens"),
        ({"max_tokens": 10**6}, "context_length_exceeded", "max_tokens"),
        ({"max_tokens": 10**12}, "invalid_value", "max_tokens"),
        ({"n": 0}, "invalid_value", "n"),
        ({"temperature": 3}, "invalid_value", "temperature"),
        ({"stop_token_ids": [60_000]}, "invalid_value", "stop_token_ids"),
        ({"logit_bias": {"60000": 5}}, "invalid_value", "logit_bias"),
        ({"min_tokens": 10**6}, "invalid_value", "min_tokens"),
        ({"tools": [{"type": "function"}]}, "unsupported_parameter", "tools"),
        ({"structured_outputs": {"json": ""}}, "invalid_value", "structured_outputs.json"),
        ({"n": 0, "stream": True}, "invalid_value", "n"),
    ],
)
def test_a_bad_field_is_a_400_that_names_it(
    house: LiveHouse, acme: Tenant, fields: dict[str, Any], code: str, param: str
) -> None:
    body = {"model": house.model, "messages": HELLO, **fields}

    assert error_of(post(house, acme, body)) == (400, code, param)


@pytest.mark.parametrize(
    ("path", "fields", "code", "param"),
    [
        ("completions", {}, "missing_field", "prompt"),
        ("completions", {"prompt": ""}, "empty_array", "prompt"),
        ("completions", {"prompt": [60_000]}, "invalid_value", "prompt"),
        ("completions", {"prompt": ["x", long_text(20_000)]}, "context_length_exceeded", "prompt"),
        (
            "completions",
            {"prompt": "x", "max_tokens": 9000},
            "context_length_exceeded",
            "max_tokens",
        ),
        ("completions", {"prompt": "x", "echo": True}, "unsupported_parameter", "echo"),
        ("embeddings", {}, "missing_field", "input"),
        ("embeddings", {"input": ["x", ""]}, "invalid_value", "input"),
        ("embeddings", {"input": [[1], [60_000]]}, "invalid_value", "input"),
        ("embeddings", {"input": long_text(20_000)}, "context_length_exceeded", "input"),
        ("embeddings", {"input": "x", "dimensions": 8}, "invalid_value", "dimensions"),
        (
            "embeddings",
            {"input": "x", "encoding_format": "hex"},
            "invalid_value",
            "encoding_format",
        ),
    ],
)
def test_a_bad_field_of_another_endpoint_is_a_400_that_names_it(
    house: LiveHouse, acme: Tenant, path: str, fields: dict[str, Any], code: str, param: str
) -> None:
    answer = post(house, acme, {"model": house.model, **fields}, f"/v1/{path}")

    assert error_of(answer) == (400, code, param)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"max_tokens": NaN}'])
def test_what_is_not_a_json_object_is_a_400(house: LiveHouse, acme: Tenant, content: bytes) -> None:
    assert post(house, acme, content).status_code == 400


@pytest.mark.parametrize(
    "content",
    [
        rb'{"model": "%s", "messages": [{"role": "user", "content": "\ud800"}]}',
        rb'{"model": "%s\u0000", "messages": [{"role": "user", "content": "Hello"}]}',
        rb'{"model": "%s", "stop": "\udfff", "messages": [{"role": "user", "content": "x"}]}',
    ],
)
def test_text_that_is_no_text_is_a_client_error(
    house: LiveHouse, acme: Tenant, content: bytes
) -> None:
    answer = post(house, acme, content % house.model.encode())

    assert 400 <= answer.status_code < 500


def test_json_nested_beyond_reason_is_a_400(house: LiveHouse, acme: Tenant) -> None:
    assert post(house, acme, b"[" * 5000 + b"]" * 5000).status_code == 400


def test_a_body_of_25_mb_is_a_413(house: LiveHouse, acme: Tenant) -> None:
    body = {"model": house.model, "messages": chat("x" * 25 * 1024 * 1024)}

    assert post(house, acme, body).status_code == 413


def test_a_prompt_beyond_the_context_is_a_400(house: LiveHouse, acme: Tenant) -> None:
    body = {"model": house.model, "messages": chat(long_text(20_000))}

    assert error_of(post(house, acme, body)) == (400, "context_length_exceeded", "messages")


def test_an_unknown_model_is_a_404(house: LiveHouse, acme: Tenant) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        house.client(acme.secret).chat.completions.create(model="gpt-9", messages=HELLO)

    assert caught.value.code == "model_not_found"


def test_unknown_endpoints_and_methods_answer_in_json(house: LiveHouse, acme: Tenant) -> None:
    with house.http(acme.secret) as client:
        unknown = client.post("/v1/images", json={})
        elsewhere = client.get("/nowhere")
        wrong_method = client.get("/v1/chat/completions")

    assert (unknown.status_code, elsewhere.status_code) == (404, 404)
    assert unknown.json()["error"]["code"] == elsewhere.json()["error"]["code"] == "unknown_url"
    assert wrong_method.status_code == 405


@pytest.mark.parametrize(
    "secret",
    [
        "wrong",
        "hr-" + "x" * 60,
        "' OR 1=1 --",
        "x" * 10_000,
        "quo'te\"s",
    ],
)
def test_a_wrong_key_is_a_401_with_one_text_for_all(
    house: LiveHouse, acme: Tenant, secret: str
) -> None:
    with pytest.raises(openai.AuthenticationError) as caught:
        house.client(secret).chat.completions.create(model=house.model, messages=HELLO)

    assert caught.value.code == "invalid_api_key"
    assert "Incorrect API key provided." in caught.value.message
    assert caught.value.response.headers["x-should-retry"] == "false"


def test_no_key_is_a_401(house: LiveHouse, acme: Tenant) -> None:
    assert error_of(post(house, None, {"model": house.model})) == (401, None, None)


def test_two_keys_that_differ_are_a_401_and_two_equal_ones_are_one(
    house: LiveHouse, acme: Tenant
) -> None:
    with house.http(acme.secret) as client:
        differing = client.get("/v1/models", headers={"x-api-key": "other"})
        equal = client.get("/v1/models", headers={"x-api-key": acme.secret})

    assert (differing.status_code, equal.status_code) == (401, 200)


def test_an_organization_header_of_somebody_else_is_a_401(house: LiveHouse, acme: Tenant) -> None:
    own = house.client(acme.secret, organization=acme.slug, project=str(acme.project_id))
    assert own.models.list().data
    for header, code in (
        ({"organization": "globex"}, "mismatched_organization"),
        ({"project": "default"}, "mismatched_project"),
    ):
        with pytest.raises(openai.AuthenticationError) as caught:
            house.client(acme.secret, **header).chat.completions.create(
                model=house.model, messages=HELLO
            )

        assert caught.value.code == code


def test_the_engine_has_survived_it_all(house: LiveHouse) -> None:
    tenant = house.new_tenant()
    answer = house.client(tenant.secret).chat.completions.create(
        model=house.model, messages=HELLO, max_tokens=1
    )

    assert answer.usage is not None
    assert answer.usage.completion_tokens == 1
