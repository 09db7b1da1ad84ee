"""kill -9 of the web process at every step of a request, from the hold to the reply: once the house
has come back, the request has one event or none, and the books are in order."""

import contextlib
from functools import partial
from pathlib import Path

import httpx
import pytest

from headrace.lifecycle.failpoints import Failpoint
from tests import books
from tests.house import CREDIT_PICO, LiveHouse, OwnHouse, Tenant, wait_until
from tests.prompts import chat

pytestmark = pytest.mark.long

REACHED_THE_ENGINE = frozenset(Failpoint) - {Failpoint.HELD}
OUTPUT_TOKENS = 4


@pytest.fixture
def failpoint_file(tmp_path: Path) -> Path:
    return tmp_path / "failpoint"


def die_at(house: LiveHouse, tenant: Tenant, point: Failpoint, file: Path, *, stream: bool) -> None:
    """A request whose web process dies at that step; then the web is started again."""
    file.write_text(point)
    body = {
        "model": house.model,
        "messages": chat("Say something short."),
        "max_tokens": OUTPUT_TOKENS,
        "temperature": 0,
        "stream": stream,
    }
    # The client sees a cut connection, or, from the settle on, perhaps the whole answer.
    with contextlib.suppress(httpx.TransportError), house.http(tenant.secret) as client:
        client.post("/v1/chat/completions", json=body)
    wait_until(lambda: house.running.child("web").exit_code is not None)

    assert not file.exists(), "the process died of something else"

    house.start("web")


def nothing_held(tenant: Tenant) -> bool:
    """Whether every hold has been closed by somebody."""
    return not books.holds(tenant)


def test_no_step_of_a_request_can_lose_or_double_a_charge(
    own_house: OwnHouse, failpoint_file: Path
) -> None:
    house = own_house(
        HEADRACE_FAILPOINT_FILE=str(failpoint_file),
        HEADRACE_HOLD_RENEW_S="1",
        HEADRACE_HOLD_LAPSE_S="3",
        HEADRACE_JOURNAL_WAIT_S="6",
    )
    for stream in (True, False):
        for point in Failpoint:
            tenant = house.new_tenant()
            die_at(house, tenant, point, failpoint_file, stream=stream)
            wait_until(partial(nothing_held, tenant), timeout_s=60)
            events = books.events(tenant)

            # A hold that no engine heard of lapses, and its event says that nobody knows more.
            assert len(events) == 1, (point, stream, events)
            charged = sum(int(event["charge_pico"]) for event in events)
            assert books.balance(tenant).held_pico == 0
            assert CREDIT_PICO - books.balance(tenant).posted_pico == charged
            if point not in REACHED_THE_ENGINE:
                assert (charged, events[0]["source"]) == (0, "estimated")
            if point in (Failpoint.SETTLED, Failpoint.ACKNOWLEDGED):
                assert events[0]["output_tokens"] == OUTPUT_TOKENS
                assert charged > 0
    books.assert_in_order()
