"""A conversation in a real browser: it streams, it can be stopped, its meter is its receipt's."""

import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import tenants.facade
from tenants.contracts import KeyKind, Role
from tests.console.browser import NARROW, WIDE, Browsing
from tests.console.people import Cast
from tests.house import LiveHouse, Tenant

ANSWER_MS = 60_000
FRANCE = "What is the capital of France?"
STORY = "Tell me a very long story about a mill on a river."
pytestmark = pytest.mark.long


@pytest.fixture
def acme(house: LiveHouse) -> Tenant:
    """Whose playground it is."""
    return house.new_tenant()


def open_playground(
    browsing: Browsing, house: LiveHouse, tenant: Tenant, width: int = WIDE
) -> Page:
    cast = Cast(tenant.slug)
    page = cast.page(browsing, cast.member(Role.DEVELOPER), width=width)
    page.goto(f"/console/{tenant.slug}/playground")
    # Others have put models up for sale that no engine here serves.
    page.locator("#play-model").select_option(house.model)
    return page


def answered(page: Page, said: str) -> None:
    expect(page.locator("#play-state")).to_have_text(said, timeout=ANSWER_MS)


def receipt_of(page: Page) -> dict[str, Any]:
    href = page.locator("#play-receipt").get_attribute("href") or ""
    counted = json.loads(page.locator("#play-about").text_content() or "")["counted"]
    answer = page.request.get(counted + href.rsplit("/", 1)[1])
    assert answer.ok, answer.text()
    shown: dict[str, Any] = answer.json()
    return shown


def check_meter(page: Page) -> dict[str, Any]:
    """The meter and the receipt of the last answer tell the same."""
    receipt = receipt_of(page)
    tokens = receipt["tokens"]
    prompt = tokens["uncached_input"] + tokens["cached_input"]
    expect(page.locator("#play-prompt")).to_have_text(f"{prompt:,}")
    expect(page.locator("#play-cached")).to_have_text(f"{tokens['cached_input']:,}")
    expect(page.locator("#play-output")).to_have_text(f"{tokens['output']:,}")
    expect(page.locator("#play-cost")).to_have_attribute("data-pico", receipt["amount_pico"])
    return receipt


def test_a_message_streams_and_the_meter_is_the_receipts(
    browsing: Browsing, house: LiveHouse, acme: Tenant
) -> None:
    page = open_playground(browsing, house, acme)
    page.locator("#play-temperature").fill("0")
    page.locator("#play-max-tokens").fill("12")
    page.locator("#play-message").fill(FRANCE)
    expect(page.locator("[data-play-shown=curl] code")).to_contain_text('"max_tokens": 12')
    page.locator("#play-message").press("Enter")
    answered(page, "Answered")

    expect(page.locator(".play-assistant .play-text")).to_have_text(
        "The capital of France is Paris."
    )
    receipt = check_meter(page)
    assert receipt["tokens"]["output"] == 8
    page.get_by_role("button", name="Python").click()
    expect(page.locator("[data-play-shown=python] code")).to_contain_text("temperature=0,")
    page.locator("#play-message").fill("<img src=x onerror=alert(1)>")
    page.locator("#play-message").press("Enter")
    answered(page, "Answered")
    expect(page.locator(".play-user .play-text").last).to_have_text("<img src=x onerror=alert(1)>")
    assert page.locator(".play-turns img").count() == 0
    page.reload()
    expect(page.locator(".play-assistant")).to_have_count(2)
    page.locator("#play-new").click()
    expect(page.locator(".play-turn")).to_have_count(0)


def test_an_answer_is_stopped_and_paid_as_far_as_it_came(
    browsing: Browsing, house: LiveHouse, acme: Tenant
) -> None:
    page = open_playground(browsing, house, acme, NARROW)
    page.locator("#play-message").fill(STORY)
    page.locator("#play-max-tokens").fill("600")
    page.locator("#play-message").press("Enter")
    expect(page.locator(".play-assistant .play-text")).not_to_be_empty(timeout=ANSWER_MS)
    page.keyboard.press("Escape")
    answered(page, "Stopped")

    receipt = check_meter(page)
    assert receipt["finish_reason"] == "cancelled"
    assert receipt["tokens"]["output"] < 600


def test_revoking_the_key_ends_the_answer_with_a_sentence(
    browsing: Browsing, house: LiveHouse, acme: Tenant
) -> None:
    page = open_playground(browsing, house, acme)
    page.locator("#play-message").fill(STORY)
    page.locator("#play-max-tokens").fill("2000")
    page.locator("#play-message").press("Enter")
    expect(page.locator(".play-assistant .play-text")).not_to_be_empty(timeout=ANSWER_MS)
    actor = tenants.facade.operator_of(acme.organization_id)
    for key in tenants.facade.list_keys(actor, KeyKind.PROJECT, with_revoked=False):
        if key.settings.name == "Playground":
            tenants.facade.revoke_key_as(actor, key.key_id)
    answered(page, "Not answered")

    expect(page.locator(".play-error .play-text")).to_be_visible()
    page.locator("#play-max-tokens").fill("2")
    page.locator("#play-message").fill("Hello")
    page.locator("#play-message").press("Enter")
    answered(page, "Answered")
