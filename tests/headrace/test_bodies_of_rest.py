"""How much of a body the REST half reads from somebody it does not know yet."""

import asyncio
import logging
from typing import Any

import pytest
from django.test import override_settings

from headrace.asgi import rest
from tests.headrace.door import Door

pytestmark = pytest.mark.usefixtures("django_database", "crowd")
MIB = 1024 * 1024
SMALL = (
    *("/stripe/events", "/accounts/login/", "/accounts/signup/"),
    *("/console/", "/console/invitation", "/console/acme/keys/new", "/operator/tenants"),
)
OTHERS = ("/nowhere", "/api/v1/organizations", "/v1/organization/projects")
CONTENT_TYPES = ("application/json", "multipart/form-data; boundary=B")


class Sender:
    """A client that sends a body in parts of a MiB and no length, as long as it is listened to."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.sent = 0
        self.answer: list[Any] = []

    async def receive(self) -> dict[str, Any]:
        if self.sent == self.parts:
            await asyncio.Event().wait()  # stays, and says no more
        self.sent += 1
        more = self.sent < self.parts
        return {"type": "http.request", "body": b"x" * MIB, "more_body": more}

    async def send(self, message: Any) -> None:
        self.answer.append(message)

    def post(self, path: str, content_type: str = "application/json") -> int:
        """The status."""
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "headers": [(b"host", b"127.0.0.1"), (b"content-type", content_type.encode())],
        }
        asyncio.run(rest(scope, self.receive, self.send))
        status: int = self.answer[0]["status"]
        return status


@pytest.mark.parametrize("content_type", CONTENT_TYPES)
@pytest.mark.parametrize(
    ("path", "read_max"), [(path, 2) for path in SMALL] + [(path, 21) for path in OTHERS]
)
def test_an_endless_body_is_refused_soon(
    path: str, read_max: int, content_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    sender = Sender(parts=40)

    assert sender.post(path, content_type) == 413
    assert sender.sent == read_max
    assert b'"code":null' in sender.answer[1]["body"]
    assert any(name == b"x-request-id" for name, _ in sender.answer[0]["headers"])
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("path", SMALL)
def test_a_body_that_says_it_is_too_large_is_not_read(path: str) -> None:
    answer = Door().post(path, content=b"", headers={"content-length": str(MIB + 1)})

    assert answer.status_code == 413
    assert "1048576 bytes" in answer.json()["error"]["message"]


def test_a_body_of_just_the_limit_is_read() -> None:
    sender = Sender(parts=1)

    assert sender.post("/stripe/events") == 400


def test_bodies_together_have_a_limit_and_leave_their_room() -> None:
    with override_settings(BODIES_BYTES_MAX=3 * MIB):
        assert Sender(parts=4).post("/nowhere") == 503
        assert Sender(parts=3).post("/nowhere") == 404
