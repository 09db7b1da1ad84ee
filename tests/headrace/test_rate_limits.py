"""Minute limits: exact in Redis, the same rules in one process while Redis is away."""

import asyncio
import os
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from headrace.gateway.admission.rate_limits import (
    WINDOW_MS,
    LimitState,
    LocalLimits,
    RateLimiter,
    go_duration,
    refusal,
)
from headrace.gateway.orders import MinuteLimits

LIMITS = MinuteLimits(requests_max=3, tokens_max=100, concurrent_max=10)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def test_durations_read_like_gos() -> None:
    assert [go_duration(ms) for ms in (20, 1000, 1500, 60_000, 366_000)] == [
        "20ms",
        "1s",
        "1.5s",
        "1m0s",
        "6m6s",
    ]


def test_local_limits_admit_what_fits_the_sliding_minute() -> None:
    limits, organization = LocalLimits(), uuid4()

    def reserve(name: str, tokens: int, at_ms: int) -> str:
        return limits.reserve(organization, name, tokens, LIMITS, at_ms).refused

    assert reserve("a", 60, 0) == ""
    assert reserve("b", 60, 10) == "tokens"
    assert reserve("c", 40, 20) == ""
    limits.end(organization, "c", 5)
    assert reserve("d", 35, 30) == ""
    assert reserve("e", 0, 40) == "requests"
    assert reserve("f", 60, WINDOW_MS) == ""


def test_a_second_reservation_of_a_request_replaces_its_first(
    runner: asyncio.Runner, django_database: object
) -> None:
    tight = MinuteLimits(requests_max=1, tokens_max=100, concurrent_max=1)
    local, organization, request = LocalLimits(), uuid4(), uuid4()

    async def in_redis() -> list[tuple[str, int]]:
        async with Redis.from_url(os.environ["REDIS_URL"]) as connection:
            limiter = RateLimiter(connection)
            states = [
                await limiter.reserve(organization, request, tokens, tight)
                for tokens in (60, 70, 101)
            ]
            states.append(await limiter.reserve(organization, uuid4(), 100, tight))
            return [(state.refused, state.tokens_remaining) for state in states]

    states = [local.reserve(organization, "a", tokens, tight, 0) for tokens in (60, 70, 101)]
    states.append(local.reserve(organization, "b", 100, tight, 0))
    expected = [("", 40), ("", 30), ("tokens", 100), ("", 0)]

    assert [(state.refused, state.tokens_remaining) for state in states] == expected
    assert runner.run(in_redis()) == expected


def test_a_released_request_counts_for_nothing() -> None:
    limits, organization = LocalLimits(), uuid4()
    for round_ in range(10):
        name = str(round_)
        assert limits.reserve(organization, name, 100, LIMITS, 0).refused == ""
        limits.end(organization, name, None)


@pytest.mark.usefixtures("django_database")
class TestRedis:
    """Against the real server."""

    def reserve_at_once(
        self, runner: asyncio.Runner, limits: MinuteLimits, tokens: list[int]
    ) -> tuple[list[LimitState], UUID]:
        organization = uuid4()

        async def all_at_once() -> list[LimitState]:
            async with Redis.from_url(os.environ["REDIS_URL"]) as connection:
                limiter = RateLimiter(connection)
                return await asyncio.gather(
                    *(limiter.reserve(organization, uuid4(), count, limits) for count in tokens)
                )

        return runner.run(all_at_once()), organization

    def test_parallel_requests_cannot_pass_the_token_limit_together(
        self, runner: asyncio.Runner
    ) -> None:
        tokens = [58, 175, 90, 40, 30]
        limits = MinuteLimits(requests_max=100, tokens_max=100, concurrent_max=100)
        states, _ = self.reserve_at_once(runner, limits, tokens)

        admitted = [count for count, state in zip(tokens, states, strict=True) if not state.refused]
        assert admitted
        assert sum(admitted) <= 100
        assert all(state.refused == "tokens" for state in states if state.refused)

    def test_requests_and_places_are_limited_too(self, runner: asyncio.Runner) -> None:
        few = MinuteLimits(requests_max=3, tokens_max=10_000, concurrent_max=100)
        narrow = MinuteLimits(requests_max=100, tokens_max=10_000, concurrent_max=2)
        by_requests, _ = self.reserve_at_once(runner, few, [1] * 8)
        by_places, _ = self.reserve_at_once(runner, narrow, [1] * 8)

        assert [state.refused for state in by_requests].count("requests") == 5
        assert [state.refused for state in by_places].count("concurrency") == 6

    def test_reconcile_and_release_are_idempotent_and_give_back(
        self, runner: asyncio.Runner
    ) -> None:
        organization, first, second = uuid4(), uuid4(), uuid4()

        async def story() -> list[LimitState]:
            connection = Redis.from_url(os.environ["REDIS_URL"])
            limiter = RateLimiter(connection)
            states = [await limiter.reserve(organization, first, 80, LIMITS)]
            for _ in range(2):
                await limiter.reconcile(organization, first, 10)
            states.append(await limiter.reserve(organization, second, 90, LIMITS))
            for _ in range(2):
                await limiter.release(organization, second)
            states.append(await limiter.reserve(organization, uuid4(), 91, LIMITS))
            states.append(await limiter.reserve(organization, uuid4(), 90, LIMITS))
            await connection.aclose()
            return states

        states = runner.run(story())

        assert [state.refused for state in states] == ["", "", "tokens", ""]
        assert states[-1].tokens_remaining == 0

    def test_without_redis_the_process_keeps_the_same_limits(self, runner: asyncio.Runner) -> None:
        async def story() -> list[LimitState]:
            connection = Redis.from_url("redis://127.0.0.1:1/0")
            limiter = RateLimiter(connection)
            organization = uuid4()
            states = [await limiter.reserve(organization, uuid4(), 10, LIMITS) for _ in range(5)]
            await connection.aclose()
            return states

        states = runner.run(story())

        assert [state.refused for state in states] == ["", "", "", "requests", "requests"]


def test_a_refusal_says_when_to_come_back() -> None:
    state = LimitState("requests", 1500, LIMITS, 0, 40, 1500)
    error = refusal(state, 10)

    assert (error.status, error.type, error.code) == (429, "requests", "rate_limit_exceeded")
    assert error.headers() == {
        "retry-after": "2",
        "retry-after-ms": "1500",
        "x-ratelimit-limit-requests": "3",
        "x-ratelimit-limit-tokens": "100",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-remaining-tokens": "40",
        "x-ratelimit-reset-requests": "1.5s",
        "x-ratelimit-reset-tokens": "1.5s",
    }


def test_a_request_that_can_never_fit_is_not_worth_a_retry() -> None:
    state = LimitState("tokens", 1, LIMITS, 3, 100, 0)

    assert refusal(state, 101).headers()["x-should-retry"] == "false"
