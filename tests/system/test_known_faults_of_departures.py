"""Departures that are known to leave zombies and false health: a client that goes while it waits,
an engine killed, an engine told to end."""

import json
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests import books
from tests.house import LiveHouse, OwnHouse, Tenant, wait_until
from tests.prompts import STORY

SOON_S = 1.0


@contextmanager
def open_stream(
    house: LiveHouse, tenant: Tenant, max_tokens: int = 4000
) -> Iterator[socket.socket]:
    """A raw connection that has sent a streaming request and read nothing yet."""
    url = urlsplit(house.base_url)
    asked: dict[str, Any] = {"model": house.model, "messages": STORY, "temperature": 0}
    body = json.dumps(asked | {"stream": True, "max_tokens": max_tokens})
    with socket.create_connection((url.hostname or "", url.port or 80), timeout=60) as connection:
        connection.sendall(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {url.netloc}\r\n"
            f"Authorization: Bearer {tenant.secret}\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        yield connection


def read_to_the_end(connection: socket.socket) -> str:
    """Everything until the server closes."""
    received = b""
    while part := connection.recv(65536):
        received += part
    return received.decode()


def health(house: LiveHouse) -> tuple[int, int]:
    """What /healthz and /readyz answer."""
    with house.http() as client:
        return client.get("/healthz").status_code, client.get("/readyz").status_code


def waiting(house: LiveHouse) -> float:
    return house.metrics().get("vllm:num_requests_waiting", 0)


def finish_reason(tenant: Tenant) -> str:
    """How the one request of a tenant ended, once it is settled."""
    wait_until(lambda: books.events(tenant) and not books.holds(tenant))
    (event,) = books.events(tenant)
    return str(event["finish_reason"])


@pytest.mark.long
def test_who_goes_while_it_waits_leaves_nothing_and_a_dead_engine_is_not_called_ready(
    own_house: OwnHouse,
) -> None:
    house = own_house(HEADRACE_ENGINE_OPTIONS="--running-max 1")
    tenant, queued = house.new_tenant(), house.new_tenant()
    with open_stream(house, tenant) as running:
        assert running.recv(65536)
        with open_stream(house, queued):
            wait_until(lambda: waiting(house))
        gone_at = time.monotonic()
        wait_until(lambda: not waiting(house))
        queued_freed_s = time.monotonic() - gone_at
        still_running = house.metrics()["vllm:num_requests_running"]
        house.kill("engine")
        died_at = time.monotonic()
        wait_until(lambda: health(house) == (200, 503))
        noticed_s = time.monotonic() - died_at
        told = read_to_the_end(running)

    assert queued_freed_s < SOON_S
    assert still_running == 1
    assert books.charged_pico(queued) == 0
    assert noticed_s < SOON_S
    assert '"error":' in told
    assert finish_reason(tenant) == "engine_lost"
    assert books.holds(queued) == []
    books.assert_in_order()


@pytest.mark.long
def test_an_engine_told_to_end_tells_its_streams_and_is_not_called_ready(
    own_house: OwnHouse,
) -> None:
    house = own_house(HEADRACE_DRAIN_TIMEOUT_S="5")
    short, long = house.new_tenant(), house.new_tenant()
    with open_stream(house, short, max_tokens=16) as brief, open_stream(house, long) as cut:
        assert cut.recv(65536)
        assert brief.recv(65536)
        house.running.child("engine").send(signal.SIGTERM)
        wait_until(lambda: health(house) == (200, 503))
        finished, told = read_to_the_end(brief), read_to_the_end(cut)

    assert "[DONE]" in finished
    assert '"error":' in told
    assert "[DONE]" not in told
    assert finish_reason(short) == "length"
    assert finish_reason(long) not in ("stop", "length", "cancelled")
    assert house.running.child("engine").wait(20)
    assert health(house) == (200, 503)
    books.assert_in_order()
