"""What a client can do to a connection without ever asking for anything: each has its limit."""

import json
import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from tests.house import LiveHouse, OwnHouse, wait_until


def connect(house: LiveHouse) -> socket.socket:
    url = urlsplit(house.base_url)
    assert url.hostname is not None
    return socket.create_connection((url.hostname, url.port or 80), timeout=30)


def test_a_head_beyond_its_limit_is_refused(house: LiveHouse) -> None:
    with connect(house) as connection:
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 100_000)

        assert connection.recv(65536).startswith(b"HTTP/1.1 400")


def is_cut(connection: socket.socket) -> bool:
    """Whether the server ends the connection, in whatever manner, before the client gives up."""
    try:
        return connection.recv(65536) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


@pytest.mark.long
def test_a_head_that_never_ends_is_cut(own_house: OwnHouse) -> None:
    house = own_house(HEADRACE_HEADERS_TIMEOUT_S="1")
    with connect(house) as silent, connect(house) as slow:
        slow.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n")

        assert is_cut(silent)
        assert is_cut(slow)


@pytest.mark.long
def test_connections_beyond_the_cap_are_cut(own_house: OwnHouse) -> None:
    house = own_house(HEADRACE_CONNECTIONS_MAX="8")
    with ExitStack() as stack:
        crowd = [stack.enter_context(connect(house)) for _ in range(20)]
        for connection in crowd:
            connection.settimeout(0.5)

        assert sum(is_cut(connection) for connection in crowd) >= 12
    with house.http() as client:
        wait_until(lambda: client.get("/healthz").status_code == 200)


def test_a_body_of_a_million_lists_is_refused_before_it_is_built(house: LiveHouse) -> None:
    tenant = house.new_tenant()
    body = b'{"model": "m", "x": [' + b"[]," * 600_000 + b"[]]}"
    with house.http(tenant.secret) as client:
        answer = client.post("/v1/chat/completions", content=body)

    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_json"


def test_every_answer_carries_a_request_id(house: LiveHouse) -> None:
    tenant = house.new_tenant()
    with house.http(tenant.secret) as client:
        answers = [
            client.get("/v1/models"),
            client.get("/v1/models/none"),
            client.get("/v1/usage/requests/none"),
            client.get("/nowhere"),
            client.get("/v1/usage/requests/x", headers={"Host": "elsewhere.example"}),
            client.post("/v1/stream/tickets"),
        ]

    assert [answer.status_code for answer in answers] == [200, 404, 404, 404, 400, 200]
    for answer in answers:
        assert answer.headers["x-request-id"].startswith("req_")
        assert json.loads(answer.text)
