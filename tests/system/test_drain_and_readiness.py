"""Shutting down and being stuck: readiness says so, streams end in an orderly way."""

import signal
import threading
from typing import Any

import openai
import pytest

from headrace.lifecycle.health import stalled
from inference.contracts import EngineStats
from tests import books
from tests.house import LiveHouse, OwnHouse, Tenant, wait_until
from tests.prompts import STORY, chat


def stats(*, running: int, waiting: int, step_age_s: float) -> EngineStats:
    return EngineStats(
        step=1,
        running=running,
        waiting=waiting,
        blocks_total=8,
        blocks_used=0,
        blocks_cached=0,
        prompt_tokens=0,
        prompt_tokens_cached=0,
        generation_tokens=0,
        preemptions=0,
        finished={},
        journal_unacknowledged=0,
        step_age_s=step_age_s,
    )


def test_an_engine_is_stuck_only_while_it_has_work_and_makes_no_step() -> None:
    assert stalled(stats(running=1, waiting=0, step_age_s=21), 20)
    assert stalled(stats(running=0, waiting=1, step_age_s=21), 20)
    assert not stalled(stats(running=1, waiting=0, step_age_s=19), 20)
    assert not stalled(stats(running=0, waiting=0, step_age_s=1000), 20)


def read_to_the_end(house: LiveHouse, tenant: Tenant, outcome: dict[str, Any]) -> None:
    try:
        for chunk in house.client(tenant.secret).chat.completions.create(
            model=house.model,
            messages=STORY,
            max_tokens=outcome["tokens"],
            temperature=0,
            stream=True,
        ):
            outcome["chunks"] += 1
            outcome["finish_reason"] = chunk.choices[0].finish_reason
    except openai.APIError as error:
        outcome["error"] = error


def start_reading(house: LiveHouse, tenant: Tenant, tokens: int) -> dict[str, Any]:
    outcome: dict[str, Any] = {"tokens": tokens, "chunks": 0, "error": None}
    thread = threading.Thread(target=read_to_the_end, args=(house, tenant, outcome), daemon=True)
    thread.start()
    outcome["thread"] = thread
    wait_until(lambda: outcome["chunks"] >= 3)
    return outcome


@pytest.mark.long
def test_a_web_on_sigterm_lets_short_streams_end_and_tells_long_ones(
    own_house: OwnHouse,
) -> None:
    house = own_house(HEADRACE_DRAIN_TIMEOUT_S="4")
    tenant = house.new_tenant()
    short, long = start_reading(house, tenant, 40), start_reading(house, tenant, 2000)
    house.running.child("web").send(signal.SIGTERM)
    refused = wait_until(lambda: refusal(house, tenant))
    for outcome in (short, long):
        outcome["thread"].join(timeout=30)

    assert refused is not None
    assert refused.status_code == 503
    assert refused.response.headers["x-should-retry"] == "true"
    assert int(refused.response.headers["retry-after"]) >= 1
    assert (short["finish_reason"], short["error"]) == ("length", None)
    assert isinstance(long["error"], openai.APIError)
    assert long["finish_reason"] is None
    assert house.running.child("web").wait(20)
    assert house.running.child("web").exit_code == 0
    wait_until(lambda: not books.holds(tenant))
    reasons = {event["finish_reason"] for event in books.events(tenant)}
    assert reasons == {"length", "draining"}
    books.assert_in_order()


def refusal(house: LiveHouse, tenant: Tenant) -> openai.APIStatusError | None:
    try:
        house.client(tenant.secret).chat.completions.create(
            model=house.model, messages=chat("Hello"), max_tokens=1
        )
    except openai.APIStatusError as error:
        return error
    return None


@pytest.mark.long
def test_an_engine_that_hangs_fails_readiness_and_recovers(own_house: OwnHouse) -> None:
    house = own_house()
    tenant = house.new_tenant()
    outcome = start_reading(house, tenant, 100)
    house.running.child("engine").send(signal.SIGSTOP)
    with house.http() as client:
        wait_until(lambda: client.get("/readyz").status_code == 503)
        alive = client.get("/healthz")
        house.running.child("engine").send(signal.SIGCONT)
        wait_until(lambda: client.get("/readyz").status_code == 200)
    outcome["thread"].join(timeout=60)

    assert alive.status_code == 200
    assert outcome["finish_reason"] in ("length", "stop")
