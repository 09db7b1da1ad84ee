"""What breaks while a request is under way: a silent engine, a slow settle, a database away.

Each test forces the moment it is about: the engine is stopped by signal, the account's row is
locked, the role loses its login.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import psutil
import psycopg
import pytest
from django.db import connections

import tenants.facade
from tests import books
from tests.house import LiveHouse, OwnHouse, Tenant, wait_until
from tests.prompts import STORY, chat

pytestmark = pytest.mark.long
FRANCE = chat("What is the capital of France?")


class Asking(threading.Thread):
    """A client that waits for one answer, whole or streamed."""

    def __init__(self, house: LiveHouse, tenant: Tenant, **fields: Any) -> None:
        super().__init__(daemon=True)
        self.chunks = 0
        self.text: str | None = None
        self.error: openai.APIError | None = None
        self._client = house.client(tenant.secret)
        self._body = {"model": house.model, "messages": FRANCE, "temperature": 0, **fields}
        self.start()

    def run(self) -> None:
        try:
            if not self._body.get("stream"):
                answer = self._client.chat.completions.create(**self._body)
                self.text = answer.choices[0].message.content
                return
            for _ in self._client.chat.completions.create(**self._body):
                self.chunks += 1
        except openai.APIError as error:
            self.error = error

    def wait_for_end(self, timeout_s: float = 60) -> None:
        self.join(timeout_s)
        assert not self.is_alive(), "the client waits for ever"


@contextmanager
def locked_account(tenant: Tenant) -> Iterator[None]:
    """Nobody can settle for this tenant inside: its account's row is locked."""
    parameters = connections["owner"].get_connection_params()
    settings = {key: parameters[key] for key in ("host", "port", "dbname", "user", "password")}
    with psycopg.connect(**settings) as connection:
        connection.execute("SET ROLE headrace_definer")
        connection.execute(
            "SELECT FROM billing_account WHERE organization_id = %s FOR UPDATE",
            [tenant.organization_id],
        )
        yield
        connection.rollback()


def settled_events(tenant: Tenant, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: not books.holds(tenant) and len(books.events(tenant)) == count, 90)
    books.assert_in_order()
    return books.events(tenant)


def test_a_silent_engine_is_a_504_and_costs_what_was_delivered(own_house: OwnHouse) -> None:
    house = own_house(HEADRACE_ENGINE_SILENCE_MAX_S="3", HEADRACE_ABORT_TIMEOUT_S="1")
    tenant = house.new_tenant()
    streamed = Asking(house, tenant, messages=STORY, max_tokens=300, stream=True)
    wait_until(lambda: streamed.chunks >= 3)
    whole = Asking(house, tenant, messages=STORY, max_tokens=300)
    wait_until(lambda: house.metrics().get("vllm:num_requests_running") == 2)
    house.running.child("engine").send(signal.SIGSTOP)
    for asking in (streamed, whole):
        asking.wait_for_end()
    house.running.child("engine").send(signal.SIGCONT)
    events = settled_events(tenant, 2)

    assert isinstance(whole.error, openai.InternalServerError)
    assert whole.error.status_code == 504
    assert isinstance(streamed.error, openai.APIError)
    assert {event["finish_reason"] for event in events} == {"timed_out"}
    assert sorted(event["output_tokens"] > 0 for event in events) == [False, True]
    wait_until(house.engine_is_idle)
    assert len(books.events(tenant)) == 2


def test_a_long_unstreamed_answer_is_not_taken_for_silence(own_house: OwnHouse) -> None:
    house = own_house(HEADRACE_ENGINE_SILENCE_MAX_S="2")
    tenant = house.new_tenant()
    asking = Asking(house, tenant, messages=STORY, max_tokens=150)
    asking.wait_for_end()

    assert asking.error is None
    assert settled_events(tenant, 1)[0]["output_tokens"] == 150


def test_what_happens_during_a_settle_changes_nothing_of_it(own_house: OwnHouse) -> None:
    house = own_house(HEADRACE_DRAIN_TIMEOUT_S="1")
    tenant, other = house.new_tenant(), house.new_tenant()
    asking = Asking(house, tenant, messages=STORY, max_tokens=30)
    wait_until(lambda: house.metrics().get("vllm:num_requests_running"))
    with locked_account(tenant):
        wait_until(house.engine_is_idle)
        tenants.facade.revoke_key(tenant.organization_id, tenant.key_id, using="housekeeper")
        asking.wait_for_end()

        # The reply does not wait for ever, and is the whole answer: it was complete.
        assert asking.error is None
        assert asking.text
        stream = Asking(house, other, messages=STORY, max_tokens=600, stream=True)
        wait_until(lambda: stream.chunks >= 3)
        tenants.facade.revoke_key(other.organization_id, other.key_id, using="housekeeper")
        revoked_at = time.monotonic()
        stream.wait_for_end()
        assert time.monotonic() - revoked_at < 2, "the revocation watch is dead"
    (event,) = settled_events(tenant, 1)

    assert (event["finish_reason"], event["output_tokens"]) == ("length", 30)
    assert settled_events(other, 1)[0]["finish_reason"] == "key_revoked"
    house.running.child("web").send(signal.SIGTERM)
    assert house.running.child("web").wait(30)
    assert house.running.child("web").exit_code == 0


def test_an_answer_whose_settle_takes_minutes_is_charged_all_the_same(
    own_house: OwnHouse,
) -> None:
    house = own_house()
    tenant = house.new_tenant()
    asking = Asking(house, tenant, max_tokens=5)
    wait_until(lambda: books.holds(tenant))
    with locked_account(tenant):
        asking.wait_for_end()
        # Long enough for the engine to offer the finish to anybody who would take it.
        unlocked_at = time.monotonic() + 70
        wait_until(lambda: time.monotonic() > unlocked_at, timeout_s=80)
    (event,) = settled_events(tenant, 1)

    assert asking.error is None
    assert event["output_tokens"] == 5
    assert event["charge_pico"] > 0


def test_a_database_that_is_away_is_a_503_and_streams_settle_when_it_returns(
    own_house: OwnHouse,
) -> None:
    house = own_house()
    tenant = house.new_tenant()
    stream = Asking(house, tenant, messages=STORY, max_tokens=60, stream=True)
    wait_until(lambda: stream.chunks >= 3)
    signal_postgres(house, signal.SIGSTOP)
    try:
        with house.http(tenant.secret) as client:
            answers = [
                client.post(
                    "/v1/chat/completions", json={"model": house.model, "messages": FRANCE}
                ),
                client.get("/v1/models"),
                client.get("/v1/usage/requests/req_" + "0" * 32),
                client.get("/readyz"),
            ]
        stream.wait_for_end()
    finally:
        signal_postgres(house, signal.SIGCONT)

    for answer in answers[:3]:
        assert answer.status_code == 503, answer.text
        assert answer.json()["error"]["code"] == "overloaded"
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["x-request-id"].startswith("req_")
    assert answers[3].status_code == 503
    assert stream.error is None
    with house.http(tenant.secret) as client:
        wait_until(lambda: client.get("/v1/models").status_code == 200, timeout_s=15)
    assert settled_events(tenant, 1)[0]["output_tokens"] == 60


def signal_postgres(house: LiveHouse, number: signal.Signals) -> None:
    """The postmaster and all its backends."""
    (pid_file,) = house.folder.root.glob("postgres/**/postmaster.pid")
    postmaster = psutil.Process(int(pid_file.read_text().split()[0]))
    for process in (postmaster, *postmaster.children(recursive=True)):
        process.send_signal(number)
