"""kill -9 of engine and web, mid-stream: afterwards no hold is open, each request has one event,
and the ledger balances. (The worker is killed in tests/batch_jobs.)"""

import signal
import threading
from typing import Any

import openai
import pytest

from tests import books
from tests.house import LiveHouse, OwnHouse, Tenant, wait_until
from tests.prompts import STORY, chat

CHUNKS_BEFORE_THE_KILL = 5
TEXTLESS_TOKENS_MAX = 3
pytestmark = pytest.mark.long


class Reader(threading.Thread):
    """A client that reads one stream to its end, whatever that is."""

    def __init__(self, house: LiveHouse, tenant: Tenant, **fields: Any) -> None:
        super().__init__(daemon=True)
        self.chunks = 0
        self.text = ""
        self.finish_reason: str | None = None
        self.error: Exception | None = None
        self._client = house.client(tenant.secret)
        self._body = {"model": house.model, "messages": STORY, "max_tokens": 400, **fields}
        self.start()

    def run(self) -> None:
        try:
            stream = self._client.chat.completions.create(stream=True, temperature=0, **self._body)
            for chunk in stream:
                self.chunks += 1
                self.text += chunk.choices[0].delta.content or ""
                self.finish_reason = chunk.choices[0].finish_reason
        except Exception as error:  # noqa: BLE001 - whatever the dying server makes of it
            self.error = error

    def wait_for_chunks(self) -> None:
        wait_until(lambda: self.chunks >= CHUNKS_BEFORE_THE_KILL or self.error)
        assert self.error is None

    def wait_for_end(self) -> None:
        self.join(timeout=60)
        assert not self.is_alive(), "the stream hangs"


def is_ready(house: LiveHouse) -> bool:
    with house.http() as client:
        return client.get("/readyz").status_code == 200


def assert_settled(tenant: Tenant, requests: int) -> list[dict[str, Any]]:
    wait_until(lambda: not books.holds(tenant), timeout_s=60)
    events = books.events(tenant)
    assert len({event["request_id"] for event in events}) == len(events) == requests
    assert books.balance(tenant).held_pico == 0
    books.assert_in_order()
    return events


def assert_charged_as_delivered(
    events: list[dict[str, Any]], streams: list[Reader], *, unread_chunks_max: int
) -> None:
    """Each stream was charged the tokens it was handed, which its client has counted as chunks.

    A chunk carries at least one token, and a few tokens carry no text of their own.
    """
    charged = sorted(int(event["output_tokens"]) for event in events)
    read = sorted(stream.chunks - 1 for stream in streams)
    for tokens, chunks in zip(charged, read, strict=True):
        assert chunks <= tokens <= chunks + unread_chunks_max + TEXTLESS_TOKENS_MAX


def test_a_killed_engine_ends_streams_with_an_error_and_a_fair_charge(
    own_house: OwnHouse,
) -> None:
    house = own_house()
    tenant = house.new_tenant()
    streams = [Reader(house, tenant) for _ in range(3)]
    for stream in streams:
        stream.wait_for_chunks()
    house.kill("engine")
    for stream in streams:
        stream.wait_for_end()
    with house.http() as client:
        unready = client.get("/readyz")
    events = assert_settled(tenant, requests=3)

    for stream in streams:
        assert isinstance(stream.error, openai.APIError)
        assert stream.finish_reason is None
    assert unready.status_code == 503
    assert {event["finish_reason"] for event in events} == {"engine_lost"}
    assert_charged_as_delivered(events, streams, unread_chunks_max=0)

    house.start("engine")
    wait_until(lambda: is_ready(house))
    answer = house.client(tenant.secret).chat.completions.create(
        model=house.model, messages=chat("Hello"), max_tokens=2
    )

    assert answer.choices[0].finish_reason == "length"
    assert_settled(tenant, requests=4)


def test_an_unstreamed_answer_lost_with_its_engine_costs_nothing(own_house: OwnHouse) -> None:
    house = own_house()
    tenant = house.new_tenant()
    errors: list[openai.APIStatusError] = []

    def ask() -> None:
        try:
            house.client(tenant.secret).chat.completions.create(
                model=house.model, messages=STORY, max_tokens=400
            )
        except openai.APIStatusError as error:
            errors.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(lambda: house.metrics().get("vllm:num_requests_running"))
    house.kill("engine")
    asking.join(timeout=60)
    (event,) = assert_settled(tenant, requests=1)

    assert [error.status_code for error in errors] == [500]
    assert event["charge_pico"] == 0


def test_a_killed_web_is_settled_from_the_journal_by_what_it_was_sent(
    own_house: OwnHouse,
) -> None:
    house = own_house()
    tenant = house.new_tenant()
    streams = [Reader(house, tenant) for _ in range(3)]
    for stream in streams:
        stream.wait_for_chunks()
    house.kill("web")
    for stream in streams:
        stream.wait_for_end()
    events = assert_settled(tenant, requests=3)

    assert {event["finish_reason"] for event in events} == {"peer_lost"}
    assert_charged_as_delivered(events, streams, unread_chunks_max=3)
    house.start("web")
    with house.http(tenant.secret) as client:
        request_id = f"req_{events[0]['request_id'].hex}"

        assert client.get(f"/v1/usage/requests/{request_id}").json()["state"] == "posted"
    wait_until(house.engine_is_idle, timeout_s=5)


def test_when_web_and_engine_die_the_hold_is_voided_and_never_charged_later(
    own_house: OwnHouse,
) -> None:
    house = own_house(HEADRACE_HOLD_LAPSE_S="2", HEADRACE_JOURNAL_WAIT_S="4")
    tenant = house.new_tenant()
    stream = Reader(house, tenant)
    stream.wait_for_chunks()
    # Stopped first, so that it cannot journal what the dead web leaves behind.
    house.running.child("engine").send(signal.SIGSTOP)
    house.kill("web")
    house.kill("engine")
    stream.wait_for_end()
    (event,) = assert_settled(tenant, requests=1)

    assert (event["source"], event["charge_pico"]) == ("estimated", 0)
    house.start("engine")
    house.start("web")
    wait_until(lambda: is_ready(house))
    wait_until(lambda: house.metrics().get("vllm:num_requests_running") == 0)

    assert books.events(tenant) == [event]
