"""Balances, quotas and minute limits under parallel calls, with the stock client."""

import asyncio
from typing import Any

import openai
import pytest

from billing.contracts import QuotaMetric, QuotaPeriod, QuotaScope, QuotaWanted
from billing.facade import estimate_pico, set_quota
from tenants.contracts import MinuteLimits
from tenants.facade import operator_of, update_project
from tests import books
from tests.headrace.test_websocket import create, read_until_ended, socket
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


def limit(tenant: Tenant, scope: QuotaScope, metric: QuotaMetric, amount: int) -> None:
    """A daily quota of the tenant's."""
    scope_id = {QuotaScope.KEY: tenant.key_id, QuotaScope.PROJECT: tenant.project_id}.get(scope)
    set_quota(
        operator_of(tenant.organization_id),
        QuotaWanted(scope, metric, QuotaPeriod.DAY, amount, scope_id),
        using="housekeeper",
    )


def test_an_end_user_is_bound_from_the_first_request_and_told_until_when(house: LiveHouse) -> None:
    tenant = house.new_tenant()
    limit(tenant, QuotaScope.END_USER, QuotaMetric.REQUESTS, 1)
    client = house.client(tenant.secret)

    def ask(**whom: str) -> openai.RateLimitError | None:
        try:
            client.chat.completions.create(
                model=house.model, messages=HELLO, max_tokens=1, extra_body=whom
            )
        except openai.RateLimitError as refused:
            return refused
        return None

    assert ask(user="ann") is None
    assert ask(user="ann", safety_identifier="bob") is None
    for whom in ({"user": "ann"}, {"safety_identifier": "bob"}):
        refused = ask(**whom)
        assert refused is not None
        assert (refused.code, refused.type) == ("insufficient_quota", "insufficient_quota")
        assert refused.response.headers["x-should-retry"] == "false"
        assert "over its limit of 1 requests per day. It starts again at 20" in refused.message
        assert "00:00 +0000 (UTC)" in refused.message
    assert ask() is None
    assert len(books.events(tenant)) == 3
    books.assert_in_order()


def test_an_exhausted_key_is_refused_at_every_door(house: LiveHouse) -> None:
    tenant = house.new_tenant()
    limit(tenant, QuotaScope.KEY, QuotaMetric.TOKENS, 0)
    client = house.client(tenant.secret)
    for ask in (
        lambda: client.chat.completions.create(model=house.model, messages=HELLO),
        lambda: client.chat.completions.create(model=house.model, messages=HELLO, stream=True),
        lambda: client.completions.create(model=house.model, prompt="Hello"),
        lambda: client.embeddings.create(model=house.model, input="Hello"),
    ):
        with pytest.raises(openai.RateLimitError) as caught:
            ask()

        assert caught.value.code == "insufficient_quota"
        assert "your API key over its limit of 0 tokens per day" in caught.value.message
    assert books.events(tenant) == []
    assert books.balance(tenant).held_pico == 0


def test_headers_are_those_of_the_scope_that_binds_to_the_token(
    house: LiveHouse, prompt_tokens: int
) -> None:
    tenant = house.new_tenant(requests_per_minute_max=100, tokens_per_minute_max=10_000)
    actor = operator_of(tenant.organization_id)
    limits = MinuteLimits(requests_max=3, output_tokens_max=50)
    update_project(actor, tenant.project_id, limits=limits)
    asked = {"model": house.model, "messages": HELLO, "max_tokens": OUTPUT_TOKENS}

    with house.http(tenant.secret) as client:
        answers = [client.post("/v1/chat/completions", json=asked) for _ in range(4)]

    used = prompt_tokens + OUTPUT_TOKENS
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    for place, answer in enumerate(answers[:3], start=1):
        told = answer.headers
        assert told["x-ratelimit-limit-requests"] == "3"
        assert told["x-ratelimit-remaining-requests"] == str(3 - place)
        assert told["x-ratelimit-limit-tokens"] == "10000"
        assert told["x-ratelimit-remaining-tokens"] == str(10_000 - place * used)
        assert told["x-ratelimit-remaining-output-tokens"] == str(50 - place * OUTPUT_TOKENS)
    refused = answers[3].json()["error"]
    assert refused["message"].startswith("Limit of 3 requests per minute of your project reached.")
    assert answers[3].headers["x-ratelimit-remaining-requests"] == "0"


def test_the_socket_is_bound_by_the_same_limits(house: LiveHouse) -> None:
    tenant = house.new_tenant(requests_per_minute_max=1)
    limit(tenant, QuotaScope.END_USER, QuotaMetric.REQUESTS, 0)
    asked = {"model": house.model, "messages": HELLO, "max_tokens": 1}

    async def story() -> list[str]:
        codes = []
        async with socket(house, tenant.secret) as connection:
            for name, whom in (("a", {"user": "ann"}), ("b", {}), ("c", {})):
                await create(connection, name, **asked, **whom)
                last = (await read_until_ended(connection, name))[name][-1]
                codes.append(last["data"]["error"]["code"] if last["event"] == "error" else "")
        return codes

    # What the quota refused has given its minute back.
    assert asyncio.run(story()) == ["insufficient_quota", "", "rate_limit_exceeded"]
