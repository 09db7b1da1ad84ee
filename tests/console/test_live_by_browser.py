"""A live page in a real browser: its numbers move, it says when, and that a connection is lost."""

import re

import pytest
from playwright.sync_api import expect

from tenants.contracts import Role
from tests.console.accessibility import assert_accessible
from tests.console.browser import NARROW, WIDE, Browsing
from tests.console.people import Cast
from tests.house import LiveHouse
from tests.prompts import chat

MOVED_MS = 20_000
UPDATED = re.compile(r"Live\s+· updated \d\d:\d\d:\d\d")
pytestmark = pytest.mark.long


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_overview_counts_a_request_while_somebody_looks(
    house: LiveHouse, browsing: Browsing, width: int
) -> None:
    acme = house.new_tenant()
    cast = Cast(acme.slug)
    page = cast.page(browsing, cast.member(Role.VIEWER), width=width)
    page.goto(f"/console/{acme.slug}/")
    expect(page.locator("#tile-requests .stat-value")).to_have_text("0")
    expect(page.locator("#live [data-live-text]")).to_have_text("Live")

    house.client(acme.secret).chat.completions.create(
        model=house.model, messages=chat("Hello"), max_tokens=2
    )

    expect(page.locator("#tile-requests .stat-value")).to_have_text("1", timeout=MOVED_MS)
    if width == WIDE:
        expect(page.locator("#live")).to_have_text(UPDATED)
    assert_accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
