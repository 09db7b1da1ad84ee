"""Minute limits: exact in Redis, the same rules in one process while Redis is away."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar
from uuid import UUID, uuid4

import pytest
from django.test import override_settings
from redis.asyncio import Redis

from headrace.gateway.admission import peeking
from headrace.gateway.admission.local_limits import LocalLimits
from headrace.gateway.admission.minute_limits import (
    METRICS,
    WINDOW_MS,
    Demand,
    LimitScope,
    LimitState,
    Standing,
    go_duration,
    refusal,
    scopes_of,
)
from headrace.gateway.admission.peeking import peek
from headrace.gateway.admission.rate_limits import RateLimiter
from headrace.gateway.orders import Caller, CallerLimits
from tenants.contracts import NO_LIMITS, KeyIdentity, MinuteLimits

Answer = TypeVar("Answer")
LIMITS = MinuteLimits(requests_max=3, tokens_max=100, concurrent_max=10)


def organization(limits: MinuteLimits = LIMITS) -> tuple[LimitScope, ...]:
    return (LimitScope("organization", "", limits),)


def scopes(**limits: MinuteLimits) -> tuple[LimitScope, ...]:
    """One scope of each name given."""
    return tuple(LimitScope(name, name, each) for name, each in limits.items())


def tokens(count: int) -> Demand:
    return Demand(count, 0)


def remaining(state: LimitState) -> int:
    return int(state.headers()["x-ratelimit-remaining-tokens"])


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def with_redis(runner: asyncio.Runner, story: Callable[[RateLimiter], Awaitable[Answer]]) -> Answer:
    """What a story comes to on the real server."""

    async def told() -> Answer:
        async with Redis.from_url(os.environ["REDIS_URL"]) as connection:
            return await story(RateLimiter(connection))

    return runner.run(told())


def test_durations_read_like_gos() -> None:
    assert [go_duration(ms) for ms in (20, 1000, 1500, 60_000, 366_000)] == [
        "20ms",
        "1s",
        "1.5s",
        "1m0s",
        "6m6s",
    ]


def test_local_limits_admit_what_fits_the_sliding_minute() -> None:
    limits, tenant = LocalLimits(), uuid4()

    def reserve(name: str, count: int, at_ms: int) -> str:
        return limits.reserve(tenant, name, tokens(count), organization(), at_ms).refused

    assert reserve("a", 60, 0) == ""
    assert reserve("b", 60, 10) == "tokens"
    assert reserve("c", 40, 20) == ""
    limits.end(tenant, "c", organization(), tokens(5))
    assert reserve("d", 35, 30) == ""
    assert reserve("e", 0, 40) == "requests"
    assert reserve("f", 60, WINDOW_MS) == ""


def test_a_second_reservation_of_a_request_replaces_its_first(
    runner: asyncio.Runner, django_database: object
) -> None:
    tight = organization(MinuteLimits(requests_max=1, tokens_max=100, concurrent_max=1))
    local, tenant, request = LocalLimits(), uuid4(), uuid4()

    async def in_redis(limiter: RateLimiter) -> list[LimitState]:
        states = [
            await limiter.reserve(tenant, request, tokens(count), tight) for count in (60, 70, 101)
        ]
        states.append(await limiter.reserve(tenant, uuid4(), tokens(100), tight))
        return states

    states = [local.reserve(tenant, "a", tokens(count), tight, 0) for count in (60, 70, 101)]
    states.append(local.reserve(tenant, "b", tokens(100), tight, 0))
    expected = [("", 40), ("", 30), ("tokens", 100), ("", 0)]

    assert [(state.refused, remaining(state)) for state in states] == expected
    told = with_redis(runner, in_redis)
    assert [(state.refused, remaining(state)) for state in told] == expected


def test_a_released_request_counts_for_nothing() -> None:
    limits, tenant = LocalLimits(), uuid4()
    for round_ in range(10):
        name = str(round_)
        assert limits.reserve(tenant, name, tokens(100), organization(), 0).refused == ""
        limits.end(tenant, name, organization(), None)


TIGHTEST: Sequence[tuple[dict[str, MinuteLimits], Demand, str, str]] = [
    (
        {"organization": LIMITS, "key": MinuteLimits(requests_max=1)},
        Demand(1, 1),
        "requests",
        "key",
    ),
    (
        {"organization": LIMITS, "project": MinuteLimits(output_tokens_max=9)},
        Demand(1, 5),
        "output_tokens",
        "project",
    ),
    (
        {"project": MinuteLimits(input_tokens_max=9), "end_user": LIMITS},
        Demand(5, 1),
        "input_tokens",
        "project",
    ),
    (
        {"organization": LIMITS, "end_user": MinuteLimits(concurrent_max=1)},
        Demand(1, 1),
        "concurrency",
        "end_user",
    ),
    # Both refuse for the same time: the wider scope is named.
    (
        {"organization": MinuteLimits(tokens_max=9), "key": MinuteLimits(tokens_max=5)},
        Demand(3, 2),
        "tokens",
        "organization",
    ),
]


@pytest.mark.parametrize(("limits", "demand", "metric", "scope"), TIGHTEST)
def test_the_tightest_of_all_scopes_decides_and_names_itself(
    runner: asyncio.Runner,
    django_database: object,
    limits: dict[str, MinuteLimits],
    demand: Demand,
    metric: str,
    scope: str,
) -> None:
    local, tenant, asked = LocalLimits(), uuid4(), scopes(**limits)

    async def in_redis(limiter: RateLimiter) -> list[LimitState]:
        return [await limiter.reserve(tenant, uuid4(), demand, asked) for _ in range(2)]

    for first, second in (
        [local.reserve(tenant, name, demand, asked, 0) for name in "ab"],
        with_redis(runner, in_redis),
    ):
        assert first.refused == ""
        assert (second.refused, asked[second.refused_by].name) == (metric, scope)
        assert second.standings[0].requests == first.standings[0].requests == 1


@pytest.mark.usefixtures("django_database")
class TestRedis:
    """Against the real server."""

    def reserve_at_once(
        self, runner: asyncio.Runner, limits: MinuteLimits, counts: list[int]
    ) -> tuple[list[LimitState], UUID]:
        tenant = uuid4()

        async def all_at_once(limiter: RateLimiter) -> list[LimitState]:
            return await asyncio.gather(
                *(
                    limiter.reserve(tenant, uuid4(), tokens(count), organization(limits))
                    for count in counts
                )
            )

        return with_redis(runner, all_at_once), tenant

    def test_parallel_requests_cannot_pass_the_token_limit_together(
        self, runner: asyncio.Runner
    ) -> None:
        counts = [58, 175, 90, 40, 30]
        limits = MinuteLimits(requests_max=100, tokens_max=100, concurrent_max=100)
        states, _ = self.reserve_at_once(runner, limits, counts)
        admitted = [n for n, state in zip(counts, states, strict=True) if not state.refused]

        assert sum(admitted) <= 100
        assert admitted
        assert {state.refused for state in states} == {"", "tokens"}
        assert all(state.wait_ms > 0 for state in states if state.refused)

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
        tenant, first, second = uuid4(), uuid4(), uuid4()
        asked = scopes(organization=LIMITS, key=LIMITS)

        async def story(limiter: RateLimiter) -> list[LimitState]:
            states = [await limiter.reserve(tenant, first, tokens(80), asked)]
            for _ in range(2):
                await limiter.reconcile(tenant, first, Demand(6, 4), asked)
            states.append(await limiter.reserve(tenant, second, tokens(90), asked))
            for _ in range(2):
                await limiter.release(tenant, second, asked)
            states.append(await limiter.reserve(tenant, uuid4(), tokens(91), asked))
            states.append(await limiter.reserve(tenant, uuid4(), tokens(90), asked))
            return states

        states = with_redis(runner, story)

        assert [state.refused for state in states] == ["", "", "tokens", ""]
        assert remaining(states[-1]) == 0
        assert states[-1].standings[0] == states[-1].standings[1]

    def test_a_refusal_by_one_scope_counts_in_none(self, runner: asyncio.Runner) -> None:
        tenant = uuid4()
        narrow = scopes(organization=LIMITS, project=MinuteLimits(tokens_max=10))

        async def story(limiter: RateLimiter) -> list[LimitState]:
            states = [await limiter.reserve(tenant, uuid4(), tokens(11), narrow) for _ in range(9)]
            states.append(await limiter.reserve(tenant, uuid4(), tokens(100), narrow[:1]))
            return states

        *refused, admitted = with_redis(runner, story)

        assert {state.refused for state in refused} == {"tokens"}
        assert {state.refused_by for state in refused} == {1}
        assert admitted.refused == ""

    def test_what_is_not_asked_for_is_not_refused(self, runner: asyncio.Runner) -> None:
        tenant, asked = uuid4(), scopes(key=MinuteLimits(output_tokens_max=0))

        async def story(limiter: RateLimiter) -> list[str]:
            states = [
                await limiter.reserve(tenant, uuid4(), demand, asked)
                for demand in (Demand(50, 0), Demand(50, 1))
            ]
            return [state.refused for state in states]

        assert with_redis(runner, story) == ["", "output_tokens"]

    def test_a_flushed_redis_starts_an_empty_minute(self, runner: asyncio.Runner) -> None:
        tenant = uuid4()
        one = organization(MinuteLimits(requests_max=1))

        async def story() -> list[str]:
            async with Redis.from_url(os.environ["REDIS_URL"]) as connection:
                limiter = RateLimiter(connection)
                states = [
                    await limiter.reserve(tenant, uuid4(), tokens(1), one),
                    await limiter.reserve(tenant, uuid4(), tokens(1), one),
                ]
                async for key in connection.scan_iter(f"limits:{{{tenant.hex}}}:*"):
                    await connection.delete(key)
                # The script's cache may be gone too.
                await connection.script_flush()
                states.append(await limiter.reserve(tenant, uuid4(), tokens(1), one))
                states.append(await limiter.reserve(tenant, uuid4(), tokens(1), one))
                return [state.refused for state in states]

        assert runner.run(story()) == ["", "requests", "", "requests"]

    def test_without_redis_the_process_keeps_the_same_limits(self, runner: asyncio.Runner) -> None:
        async def story() -> list[LimitState]:
            connection = Redis.from_url("redis://127.0.0.1:1/0")
            limiter = RateLimiter(connection)
            tenant = uuid4()
            states = [
                await limiter.reserve(tenant, uuid4(), tokens(10), organization()) for _ in range(5)
            ]
            await connection.aclose()
            return states

        states = runner.run(story())

        assert [state.refused for state in states] == ["", "", "", "requests", "requests"]


def test_a_request_takes_part_of_the_minutes_of_those_that_have_limits() -> None:
    end_user = MinuteLimits(requests_max=1)
    identity = KeyIdentity(uuid4(), uuid4(), uuid4(), "acme", "USD", 3, 100, 10, None)
    caller = Caller.interactive(replace(identity, end_user_limits=end_user), uuid4())

    assert caller.limits == CallerLimits(LIMITS, NO_LIMITS, NO_LIMITS, end_user)
    assert [scope.name for scope in scopes_of(caller, "")] == ["organization"]
    named = [scopes_of(caller, name) for name in ("ann", "bob")]
    assert [[scope.name for scope in each] for each in named] == [["organization", "end_user"]] * 2
    assert named[0][1].subject != named[1][1].subject
    assert "ann" not in named[0][1].subject


def test_headers_tell_of_the_scope_that_binds_and_of_limits_that_there_are() -> None:
    state = LimitState(
        scopes(
            organization=MinuteLimits(requests_max=100, tokens_max=1000),
            key=MinuteLimits(requests_max=9, output_tokens_max=40),
        ),
        (Standing(10, 200, 100, 5_000), Standing(2, 20, 50, 700)),
    )

    assert state.headers() == {
        "x-ratelimit-limit-requests": "9",
        "x-ratelimit-remaining-requests": "7",
        "x-ratelimit-reset-requests": "700ms",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "700",
        "x-ratelimit-reset-tokens": "5s",
        "x-ratelimit-limit-output-tokens": "40",
        # Used up before the limit was lowered; never below zero.
        "x-ratelimit-remaining-output-tokens": "0",
        "x-ratelimit-reset-output-tokens": "700ms",
    }


def test_a_refusal_says_whose_limit_it_is_and_when_to_come_back() -> None:
    state = LimitState(organization(), (Standing(3, 60, 0, 1500),), "requests", 0, 1500)
    error = refusal(state, tokens(10))

    assert (error.status, error.type, error.code) == (429, "requests", "rate_limit_exceeded")
    assert error.message == (
        "Limit of 3 requests per minute of your organization reached. Please try again in 1.5s."
    )
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
    state = LimitState(organization(), (Standing(0, 0, 0, 0),), "tokens", 0, WINDOW_MS)
    error = refusal(state, Demand(60, 41))

    assert error.headers()["x-should-retry"] == "false"
    assert "it may use 101 tokens, the limit of your organization is 100" in error.message


def test_who_looks_sees_what_is_used_and_counts_nothing(runner: asyncio.Runner) -> None:
    organization_id, ended, under_way = uuid4(), uuid4(), uuid4()
    both = scopes(organization=LIMITS, key=MinuteLimits(tokens_max=50))

    async def story(limiter: RateLimiter) -> None:
        await limiter.reserve(organization_id, ended, Demand(10, 20), both[:1])
        await limiter.reconcile(organization_id, ended, Demand(10, 5), both[:1])
        await limiter.reserve(organization_id, under_way, Demand(7, 0), both)

    before = peek(organization_id, both)
    with_redis(runner, story)
    [of_all, of_key] = peek(organization_id, both) or []
    again = peek(organization_id, both)

    assert before is not None
    assert [seen.used(metric) for seen in before for metric in METRICS] == [0] * 10
    assert [of_all.used(metric) for metric in METRICS] == [2, 22, 17, 5, 1]
    assert [of_key.used(metric) for metric in METRICS] == [1, 7, 7, 0, 1]
    assert 0 < of_all.standing.reset_ms <= WINDOW_MS
    assert again is not None
    assert [seen.used("requests") for seen in again] == [2, 1]


def test_who_looks_while_redis_is_away_sees_nothing() -> None:
    peeking._connection.cache_clear()
    try:
        with override_settings(REDIS_URL="redis://127.0.0.1:1/0"):
            assert peek(uuid4(), organization()) is None
    finally:
        peeking._connection.cache_clear()
