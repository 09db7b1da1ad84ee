"""WebSocket clients that stop reading or vanish: nothing of theirs stays, whatever is unread."""

import base64
import json
import os
import socket
import struct
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests import books
from tests.house import LiveHouse, OwnHouse, Tenant, wait_until
from tests.prompts import STORY

REQUESTS = 3
MANY_TOKENS = 600


def open_socket(house: LiveHouse, tenant: Tenant) -> socket.socket:
    """A raw WebSocket whose small receive buffer nobody empties."""
    url = urlsplit(house.base_url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(30)
    connection.connect((url.hostname, url.port))
    key = base64.b64encode(os.urandom(16)).decode()
    connection.sendall(
        f"GET /v1/stream HTTP/1.1\r\nHost: {url.netloc}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        f"Authorization: Bearer {tenant.secret}\r\n\r\n".encode()
    )
    assert b" 101 " in connection.recv(1024)
    return connection


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """One text frame, masked with zeros as a client must."""
    payload = json.dumps(message).encode()
    assert 126 <= len(payload) < 1 << 16
    connection.sendall(struct.pack(">BBH", 0x81, 0x80 | 126, len(payload)) + bytes(4) + payload)


def start_requests(house: LiveHouse, tenant: Tenant) -> socket.socket:
    connection = open_socket(house, tenant)
    body = {
        "model": house.model,
        "messages": STORY,
        "max_tokens": MANY_TOKENS,
        "temperature": 0,
    }
    for index in range(REQUESTS):
        send(connection, {"type": "create", "id": f"request-{index}", "body": body})
    wait_until(lambda: house.metrics().get("vllm:num_requests_running") == REQUESTS)
    return connection


def assert_all_cancelled(house: LiveHouse, tenant: Tenant, within_s: float) -> None:
    wait_until(house.engine_is_idle, timeout_s=within_s)
    wait_until(lambda: not books.holds(tenant) and len(books.events(tenant)) == REQUESTS)
    events = books.events(tenant)

    assert {event["finish_reason"] for event in events} == {"cancelled"}
    assert all(event["output_tokens"] < MANY_TOKENS for event in events)
    books.assert_in_order()


@pytest.mark.long
def test_a_socket_that_vanishes_with_unread_messages_leaves_nothing_behind(
    own_house: OwnHouse,
) -> None:
    house = own_house(HEADRACE_SOCKET_SEND_BYTES="4096")
    tenant = house.new_tenant()
    connection = start_requests(house, tenant)
    wait_until(lambda: house.metrics()["vllm:generation_tokens_total"] > 90)
    # Closed with a reset, as by a client that crashed.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()

    assert_all_cancelled(house, tenant, within_s=2)


@pytest.mark.long
def test_a_socket_that_is_not_read_loses_all_its_requests_at_once(own_house: OwnHouse) -> None:
    house = own_house(HEADRACE_STREAM_WRITE_TIMEOUT_S="2", HEADRACE_SOCKET_SEND_BYTES="4096")
    tenant = house.new_tenant()
    connection = start_requests(house, tenant)

    assert_all_cancelled(house, tenant, within_s=40)
    # The kernel ends what nobody reads, so that the server's side does not stay.
    wait_until(lambda: not _server_sockets(house), timeout_s=30)
    connection.close()


def _server_sockets(house: LiveHouse) -> list[Any]:
    import psutil

    port = urlsplit(house.base_url).port
    web = psutil.Process(house.running.child("web").pid)
    return [
        c for c in web.net_connections("tcp") if c.status == "ESTABLISHED" and c.laddr.port == port
    ]
