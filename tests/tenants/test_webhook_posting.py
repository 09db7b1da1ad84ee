"""One post: to the address that was checked, within its time, reading little, following nothing."""

from collections.abc import Sequence

import pytest

from tenants.webhooks.posting import ANSWER_BYTES_MAX, post
from tests.tenants.receiver import dripping, receiving

BODY = b'{"type": "endpoint.test"}'


class Resolver:
    """Answers each question with the next of its answers, and counts the questions."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        return self.answers.pop(0)


def test_a_post_arrives_whole_at_the_address_that_was_resolved() -> None:
    with receiving() as receiver:
        resolver = Resolver(["127.0.0.1"])
        answer = post(
            f"http://hooks.example:{receiver.port}/a?b=c",
            BODY,
            {"webhook-id": "evt_1"},
            loopback_allowed=True,
            resolve=resolver,
        )

    [got] = receiver.received
    assert (answer.status_code, answer.error, answer.answer_start) == (200, "", "ok")
    assert answer.accepted
    assert (got.path, got.body) == ("/a?b=c", BODY)
    assert got.headers["host"] == f"hooks.example:{receiver.port}"
    assert got.headers["webhook-id"] == "evt_1"


def test_a_name_that_changes_after_it_was_checked_is_not_asked_again() -> None:
    with receiving() as receiver:
        resolver = Resolver(["127.0.0.1"], ["10.0.0.1"])
        answer = post(
            f"http://hooks.example:{receiver.port}/",
            BODY,
            {},
            loopback_allowed=True,
            resolve=resolver,
        )

    assert answer.accepted
    assert len(resolver.asked) == 1


@pytest.mark.parametrize(
    "addresses",
    [["10.0.0.1"], ["169.254.169.254"], ["::ffff:127.0.0.1"], ["8.8.8.8", "127.0.0.1"], []],
)
def test_a_name_that_leads_inside_is_refused_before_any_connection(addresses: list[str]) -> None:
    answer = post("https://hooks.example/", BODY, {}, resolve=Resolver(addresses))

    assert answer.status_code is None
    assert answer.error.startswith("refused: its name")


def test_loopback_is_refused_unless_it_was_opened() -> None:
    with receiving() as receiver:
        answers = [
            post(receiver.url, BODY, {}),
            post(f"https://127.0.0.1:{receiver.port}/", BODY, {}),
            post(f"https://hooks.example:{receiver.port}/", BODY, {}, resolve=Resolver(["::1"])),
        ]

    assert receiver.received == []
    assert all(answer.error.startswith("refused") for answer in answers)


def test_a_redirect_is_a_failure_and_is_not_followed() -> None:
    with receiving() as inner, receiving() as receiver:
        receiver.status = 302
        receiver.answer_headers = {"location": inner.url}
        answer = post(receiver.url, BODY, {}, loopback_allowed=True)

    assert (answer.status_code, answer.accepted) == (302, False)
    assert inner.received == []


def test_only_the_first_bytes_of_an_answer_are_read_and_are_storable() -> None:
    with receiving() as receiver:
        receiver.answer = b"\x00\xff" + b"a" * 100_000
        answer = post(receiver.url, BODY, {}, loopback_allowed=True)

    assert len(answer.answer_start) == ANSWER_BYTES_MAX
    assert "\x00" not in answer.answer_start


@pytest.mark.parametrize(
    "first", [b"", b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n"]
)
def test_an_answer_that_drips_is_cut_off(first: bytes) -> None:
    with dripping(first) as port:
        answer = post(f"http://127.0.0.1:{port}/", BODY, {}, loopback_allowed=True, timeout_s=0.3)

    assert (answer.status_code, answer.error) == (None, "timed out")
    assert answer.latency_ms < 3000


def test_nobody_there_and_no_tls_are_errors_not_exceptions() -> None:
    with receiving() as receiver:
        plain = post(f"https://127.0.0.1:{receiver.port}/", BODY, {}, loopback_allowed=True)
    gone = post(receiver.url, BODY, {}, loopback_allowed=True)

    assert plain.error.startswith("TLS: ")
    assert gone.error == "no answer: ConnectionRefusedError"
