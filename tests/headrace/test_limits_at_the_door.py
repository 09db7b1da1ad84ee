"""Balances, quotas and minute limits under parallel calls, with the stock client."""

import asyncio
from typing import Any

import openai
import pytest

from billing.facade import estimate_pico
from tests import books
from tests.house import LiveHouse, Tenant
from tests.prompts import chat

HELLO = chat("Hello")
OUTPUT_TOKENS = 2


async def _many(house: LiveHouse, tenant: Tenant, calls: int) -> list[Any]:
    async with house.async_client(tenant.secret) as client:
        return await asyncio.gather(
            *(
                client.chat.completions.create(
                    model=house.model, messages=HELLO, max_tokens=OUTPUT_TOKENS
                )
                for _ in range(calls)
            ),
            return_exceptions=True,
        )


def many(house: LiveHouse, tenant: Tenant, calls: int) -> tuple[int, list[openai.APIStatusError]]:
    """How many of `calls` parallel requests were answered, and the refusals of the others."""
    answers = asyncio.run(_many(house, tenant, calls))
    refusals = [answer for answer in answers if isinstance(answer, openai.APIStatusError)]
    other = [a for a in answers if isinstance(a, BaseException) and a not in refusals]
    assert not other
    return len(answers) - len(refusals), refusals


@pytest.fixture(scope="module")
def prompt_tokens(house: LiveHouse) -> int:
    """The tokens of HELLO, as the engine counts them."""
    answer = house.client(house.new_tenant().secret).chat.completions.create(
        model=house.model, messages=HELLO, max_tokens=1
    )
    assert answer.usage is not None
    return answer.usage.prompt_tokens


def test_fifty_calls_on_a_balance_for_ten_admit_what_fits_and_no_more(
    house: LiveHouse, prompt_tokens: int
) -> None:
    quote = books.quote(house, house.new_tenant())
    credit_pico = 10 * estimate_pico(quote, prompt_tokens, OUTPUT_TOKENS)
    tenant = house.new_tenant(credit_pico=credit_pico)
    answered, refusals = many(house, tenant, 50)
    balance = books.balance(tenant)

    # Ten holds fit at once; what cached tokens leave of them may carry a few requests more.
    assert answered >= 10
    assert refusals
    assert all(refusal.code == "insufficient_quota" for refusal in refusals)
    assert all(refusal.response.headers["x-should-retry"] == "false" for refusal in refusals)
    assert len(books.events(tenant)) == answered
    assert balance.held_pico == 0
    assert 0 <= balance.posted_pico == credit_pico - books.charged_pico(tenant)
    books.assert_in_order()


def test_a_tenant_without_credit_is_refused_at_once(house: LiveHouse) -> None:
    tenant = house.new_tenant(credit_pico=0)
    client = house.client(tenant.secret)
    for ask in (
        lambda: client.chat.completions.create(model=house.model, messages=HELLO),
        lambda: client.completions.create(model=house.model, prompt="Hello"),
        lambda: client.embeddings.create(model=house.model, input="Hello"),
    ):
        with pytest.raises(openai.RateLimitError) as caught:
            ask()

        assert caught.value.code == "insufficient_quota"
        assert "retry-after" not in caught.value.response.headers
    assert books.events(tenant) == []


def test_a_daily_quota_admits_only_what_it_holds(house: LiveHouse, prompt_tokens: int) -> None:
    tokens = prompt_tokens + OUTPUT_TOKENS
    tenant = house.new_tenant(daily_tokens_max=2 * tokens)
    answered, refusals = many(house, tenant, 6)
    before = books.daily_tokens(tenant)
    _, more = many(house, tenant, 3)

    assert answered == 2
    assert all(refusal.code == "insufficient_quota" for refusal in refusals + more)
    assert before == books.daily_tokens(tenant)
    assert before[0] <= 2 * tokens


def test_requests_per_minute_are_limited_with_a_retry_after(house: LiveHouse) -> None:
    tenant = house.new_tenant(requests_per_minute_max=3)
    answered, refusals = many(house, tenant, 8)

    assert answered == 3
    assert len(refusals) == 5
    for refusal in refusals:
        assert (refusal.status_code, refusal.code) == (429, "rate_limit_exceeded")
        assert int(refusal.response.headers["retry-after"]) >= 1
        assert int(refusal.response.headers["retry-after-ms"]) >= 1
        assert "x-should-retry" not in refusal.response.headers


def test_tokens_per_minute_admit_only_what_their_reservations_allow(
    house: LiveHouse, prompt_tokens: int
) -> None:
    tokens = prompt_tokens + OUTPUT_TOKENS
    tenant = house.new_tenant(tokens_per_minute_max=2 * tokens + 1)
    answered, refusals = many(house, tenant, 5)

    assert answered == 2
    assert all(refusal.type == "tokens" for refusal in refusals)


def test_a_refused_call_gives_its_minute_back(house: LiveHouse) -> None:
    tenant = house.new_tenant(credit_pico=0, requests_per_minute_max=2)
    refusals = [refusal for _ in range(6) for refusal in many(house, tenant, 1)[1]]

    assert len(refusals) == 6
    assert {refusal.code for refusal in refusals} == {"insufficient_quota"}
