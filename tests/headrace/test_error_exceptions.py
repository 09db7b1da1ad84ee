"""Each row of the error table, as the exception that the stock client makes of it."""

from typing import Any
from uuid import uuid4

import openai
import pytest

import billing.facade
import tenants.facade
from billing.contracts import ServiceTier
from tests import books
from tests.house import LiveHouse, Tenant
from tests.prompts import chat, long_text

HELLO = chat("Hello")


def caught(house: LiveHouse, secret: str, **fields: Any) -> openai.APIStatusError:
    """What the stock client raises; it must not have been tempted to retry."""
    body = {"model": house.model, "messages": HELLO, **fields}
    with pytest.raises(openai.APIStatusError) as error:
        house.client(secret).chat.completions.create(**body)
    assert error.value.response.headers["x-should-retry"] == "false"
    assert error.value.request_id is not None
    assert error.value.request_id.startswith("req_")
    return error.value


def kind(error: openai.APIStatusError) -> tuple[type, str | None, str | None]:
    return type(error), error.type, error.code


@pytest.fixture
def acme(house: LiveHouse) -> Tenant:
    return house.new_tenant()


def test_a_wrong_key(house: LiveHouse) -> None:
    assert kind(caught(house, "wrong")) == (
        openai.AuthenticationError,
        "invalid_request_error",
        "invalid_api_key",
    )


def test_an_archived_project(house: LiveHouse, acme: Tenant) -> None:
    tenants.facade.archive_project(acme.organization_id, acme.project_id, using="housekeeper")

    assert kind(caught(house, acme.secret)) == (
        openai.PermissionDeniedError,
        "permission_error",
        "insufficient_permissions",
    )


def test_an_unknown_model(house: LiveHouse, acme: Tenant) -> None:
    error = caught(house, acme.secret, model="gpt-9")

    assert kind(error) == (openai.NotFoundError, "invalid_request_error", "model_not_found")
    assert error.param == "model"


def test_a_model_without_a_price_is_not_free(house: LiveHouse, acme: Tenant) -> None:
    name = f"unpriced-{uuid4().hex[:8]}"
    billing.facade.publish_offer(name, "Unpriced", "test", 8192, 512)

    assert kind(caught(house, acme.secret, model=name)) == (
        openai.NotFoundError,
        "invalid_request_error",
        "model_not_found",
    )
    assert books.events(acme) == []


def test_a_model_for_sale_that_no_engine_serves(house: LiveHouse, acme: Tenant) -> None:
    name = f"elsewhere-{uuid4().hex[:8]}"
    billing.facade.publish_offer(name, "Elsewhere", "test", 8192, 512)
    for token_class in ("input", "output"):
        billing.facade.set_price(name, ServiceTier.INTERACTIVE, token_class, 1)
    with pytest.raises(openai.InternalServerError) as error:
        house.client(acme.secret).chat.completions.create(model=name, messages=HELLO)

    assert (error.value.status_code, error.value.code) == (503, "overloaded")
    assert error.value.response.headers["x-should-retry"] == "true"
    assert books.holds(acme) == books.events(acme) == []


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"temperature": 9}, "invalid_value", "temperature"),
        ({"tools": [{"type": "function"}]}, "unsupported_parameter", "tools"),
        ({"messages": chat(long_text(20_000))}, "context_length_exceeded", "messages"),
        ({"extra_body": {"stream": "yes"}}, "invalid_type", "stream"),
    ],
)
def test_a_bad_field(
    house: LiveHouse, acme: Tenant, fields: dict[str, Any], code: str, param: str
) -> None:
    error = caught(house, acme.secret, **fields)

    assert kind(error) == (openai.BadRequestError, "invalid_request_error", code)
    assert error.param == param


def test_a_body_that_is_too_large(house: LiveHouse, acme: Tenant) -> None:
    error = caught(house, acme.secret, messages=chat("x" * 21 * 1024 * 1024))

    assert error.status_code == 413
    assert error.type == "invalid_request_error"


def test_a_balance_that_is_gone(house: LiveHouse) -> None:
    assert kind(caught(house, house.new_tenant(credit_pico=0).secret)) == (
        openai.RateLimitError,
        "insufficient_quota",
        "insufficient_quota",
    )


def test_a_request_that_no_minute_can_hold(house: LiveHouse) -> None:
    tenant = house.new_tenant(tokens_per_minute_max=10)

    assert kind(caught(house, tenant.secret)) == (
        openai.RateLimitError,
        "tokens",
        "rate_limit_exceeded",
    )
