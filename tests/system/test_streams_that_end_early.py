"""Clients that leave, stop reading, or lose their key: the engine stops, the charge is exact."""

import json
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest

import tenants.facade
from tests import books
from tests.house import LiveHouse, OwnHouse, Tenant, wait_until
from tests.prompts import STORY, chat

MANY_TOKENS = 600


def open_stream(
    house: LiveHouse, tenant: Tenant, *, receive_bytes: int | None = None, **fields: Any
) -> socket.socket:
    """A raw connection that has sent a streaming request and read nothing yet."""
    url = urlsplit(house.base_url)
    body = json.dumps(
        {
            "model": house.model,
            "messages": STORY,
            "max_tokens": MANY_TOKENS,
            "temperature": 0,
            "stream": True,
            **fields,
        }
    )
    connection = socket.socket()
    if receive_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.settimeout(60)
    connection.connect((url.hostname, url.port))
    connection.sendall(
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {url.netloc}\r\n"
        f"Authorization: Bearer {tenant.secret}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    return connection


def read_chunks(connection: socket.socket, chunks: int) -> int:
    """Reads until at least `chunks` frames have come; how many came."""
    received = b""
    while received.count(b"data: ") < chunks:
        part = connection.recv(65536)
        assert part, received
        received += part
    return received.count(b'"content":"') - 1


def only_event(tenant: Tenant) -> dict[str, Any]:
    wait_until(lambda: books.events(tenant) and not books.holds(tenant))
    (event,) = books.events(tenant)
    assert books.balance(tenant).held_pico == 0
    assert books.balance(tenant).posted_pico >= 0
    return event


def generated_tokens(house: LiveHouse) -> float:
    return house.metrics()["vllm:generation_tokens_total"]


def test_a_closed_socket_stops_the_engine_within_a_second_and_costs_what_was_generated(
    own_house: OwnHouse,
) -> None:
    house = own_house()
    tenant = house.new_tenant()
    connection = open_stream(house, tenant)
    read_chunks(connection, 5)
    connection.close()
    closed_at = time.monotonic()
    wait_until(house.engine_is_idle, timeout_s=5)
    idle_after_s = time.monotonic() - closed_at
    event = only_event(tenant)

    assert idle_after_s < 1
    assert event["finish_reason"] == "cancelled"
    assert 4 <= event["output_tokens"] < MANY_TOKENS
    assert event["output_tokens"] == generated_tokens(house)
    books.assert_in_order()


def test_a_client_that_leaves_before_the_first_byte_is_noticed(
    house: LiveHouse,
) -> None:
    tenant = house.new_tenant()
    connection = open_stream(house, tenant)
    wait_until(lambda: books.holds(tenant))
    connection.close()
    event = only_event(tenant)

    assert event["finish_reason"] == "cancelled"
    assert event["output_tokens"] < MANY_TOKENS
    wait_until(house.engine_is_idle, timeout_s=5)


@pytest.mark.long
def test_a_client_that_stops_reading_loses_its_stream(own_house: OwnHouse) -> None:
    house = own_house(HEADRACE_STREAM_WRITE_TIMEOUT_S="1", HEADRACE_SOCKET_SEND_BYTES="8192")
    tenant = house.new_tenant()
    connection = open_stream(house, tenant, receive_bytes=4096, max_tokens=4000)
    event = only_event(tenant)

    assert event["finish_reason"] == "cancelled"
    connection.close()


def test_a_revoked_key_is_cut_off_within_two_seconds(house: LiveHouse) -> None:
    tenant = house.new_tenant()
    stream = house.client(tenant.secret).chat.completions.create(
        model=house.model,
        messages=STORY,
        max_tokens=MANY_TOKENS,
        temperature=0,
        stream=True,
    )
    iterator = iter(stream)
    for _ in range(3):
        next(iterator)
    tenants.facade.revoke_key(tenant.organization_id, tenant.key_id, using="housekeeper")
    revoked_at = time.monotonic()
    with pytest.raises(openai.APIError, match="Incorrect API key"):
        for _ in iterator:
            pass
    cut_after_s = time.monotonic() - revoked_at

    assert cut_after_s < 2
    assert only_event(tenant)["finish_reason"] == "key_revoked"
    # A key look-up may be a second old, where no money is at stake.
    wait_until(lambda: is_refused(house, tenant), timeout_s=2)


def is_refused(house: LiveHouse, tenant: Tenant) -> bool:
    try:
        house.client(tenant.secret).models.list()
    except openai.AuthenticationError:
        return True
    return False


@pytest.mark.long
def test_without_a_limit_of_its_own_an_answer_ends_at_the_context(house: LiveHouse) -> None:
    tenant = house.new_tenant()
    words = "mill " * 8_080
    answer = house.client(tenant.secret).chat.completions.create(
        model=house.model,
        messages=chat(words + "Tell a story that never ends."),
        temperature=0,
        extra_body={"stop": None},
    )
    context = house.client(tenant.secret).models.retrieve(house.model).model_extra

    assert context is not None
    assert answer.usage is not None
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.total_tokens == context["context_length"]
