"""The operator at work in a browser, on a house whose worker carries out what they order."""

import re

import pytest
from playwright.sync_api import expect

from billing.facade import balance
from tests.console.accessibility import assert_accessible
from tests.console.browser import NARROW
from tests.console.conftest import MemberPage
from tests.console.looking import assert_fits, go
from tests.house import LiveHouse, wait_until

pytestmark = pytest.mark.long


def test_an_operator_grants_credit_and_sees_it_granted(
    operator_page: MemberPage, house: LiveHouse
) -> None:
    tenant = house.new_tenant(credit_pico=0)
    page = operator_page()
    go(page, f"/operator/tenants?q={tenant.slug}")
    page.get_by_role("link", name=tenant.slug).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(tenant.slug)
    page.get_by_label("Amount").fill("12.50")
    page.get_by_role("textbox", name="Reference").fill("ticket 7")
    page.get_by_role("button", name="Grant").click()

    expect(page.get_by_text("The credit is granted.")).to_be_visible(timeout=30_000)
    expect(page.get_by_text("grant:ticket 7")).to_be_visible()
    assert balance(tenant.organization_id).posted_pico == 12_500_000_000_000
    assert_fits(page)
    assert_accessible(page)


def test_prices_are_tried_before_they_are_published(
    operator_page: MemberPage, house: LiveHouse
) -> None:
    page = operator_page()
    go(page, "/operator/models")
    page.get_by_role("link", name="New prices").click()
    page.get_by_label("Model").select_option(house.model)
    page.get_by_label("Input", exact=True).fill("0.06")
    page.get_by_role("button", name="Try on the last 30 days").click()

    expect(page.get_by_text("would have cost.")).to_be_visible(timeout=30_000)
    expect(page.get_by_label("Input", exact=True)).to_have_value(re.compile(r"0\.06"))
    assert_fits(page)
    assert_accessible(page)


def test_the_fleet_is_there_a_second_later(operator_page: MemberPage, house: LiveHouse) -> None:
    page = operator_page()
    go(page, "/operator/")

    expect(page.get_by_role("cell", name=house.model)).to_be_visible(timeout=30_000)
    assert_fits(page)


def test_a_busy_engine_has_a_point_on_its_curve(
    operator_page: MemberPage, house: LiveHouse
) -> None:
    tenant = house.new_tenant()
    page = operator_page(width=NARROW)
    go(page, "/operator/")
    point = page.locator(".curve tbody tr")

    def ask_until_there() -> bool:
        house.client(tenant.secret).chat.completions.create(
            model=house.model, messages=[{"role": "user", "content": "Hi"}], max_tokens=16
        )
        return page.locator(".curve canvas").count() > 0

    wait_until(ask_until_there)
    page.locator(".curve summary").click()
    known = point.count()
    expect(point.first).to_contain_text("ms")

    def ask_until_more() -> bool:
        return ask_until_there() and point.count() > known

    wait_until(ask_until_more)
    expect(point.first).to_be_visible()
    assert_fits(page)
    assert_accessible(page)
