"""API keys are in no log, in whatever way they were sent."""

import contextlib

import pytest
import websockets.sync.client

from headrace.telemetry.logging import strike_secrets
from tests.house import LiveHouse
from tests.prompts import chat


def test_no_key_reaches_a_log(house: LiveHouse) -> None:
    tenant = house.new_tenant()
    house.client(tenant.secret).chat.completions.create(
        model=house.model, messages=chat("Hello"), max_tokens=1
    )
    with house.http() as client:
        client.get(f"/v1/models?api_key={tenant.secret}")
        client.get(f"/nowhere/{tenant.secret}")
        client.post("/v1/chat/completions", headers={"x-api-key": tenant.secret + "x"}, json={})
        client.get("/v1/usage/requests/x", headers={"Host": f"{tenant.secret}.example"})
    url = house.base_url.replace("http", "ws", 1) + f"/stream?key={tenant.secret}"
    with (
        contextlib.suppress(websockets.ConnectionClosed),
        websockets.sync.client.connect(url, proxy=None) as connection,
    ):
        connection.recv()
    logs = "".join(path.read_text() for path in house.folder.logs.glob("*.log"))

    assert "request settled" in logs
    assert tenant.secret not in logs


@pytest.mark.parametrize(
    "start", ["hr-", "ticket.", "sk-", "sk_live_", "sk_test_", "rk_live_", "whsec_"]
)
def test_whatever_opens_something_is_struck_out(start: str) -> None:
    secret = start + "aB3+/_-" * 4 + "="
    event = strike_secrets(None, "", {"event": f"got '{secret}', a task-and-risk-management thing"})

    assert event == {"event": f"got '{start}***', a task-and-risk-management thing"}


def test_a_key_that_slips_into_an_event_is_struck_out() -> None:
    key = "hr-" + "aB3" * 16
    event = strike_secrets(None, "", {"event": f"got {key}", "count": 3, "url": f"/x?k={key}&b=1"})

    assert event == {"event": "got hr-***", "count": 3, "url": "/x?k=hr-***&b=1"}
