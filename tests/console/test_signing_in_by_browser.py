"""Signing up, in and with a second factor, as people do it: by clicking, in a browser."""

import re

import pytest
from playwright.sync_api import Page, expect

from headrace.standalone.demo_people import Mailbox
from tests.console.browser import Browsing
from tests.console.people import (
    Person,
    fill_sign_in,
    link_mailed,
    new_person,
    prove_again,
    sign_in,
)
from tests.headrace.signing_in import PASSWORD, new_address, totp

pytestmark = pytest.mark.long
TOTP_ACTIVATE = "/accounts/2fa/totp/activate/"


def is_signed_in(page: Page) -> bool:
    return page.request.get("/api/v1/me").status == 200


def test_who_signs_up_follows_the_link_in_the_mail_and_is_in(
    browsing: Browsing, mailbox: Mailbox
) -> None:
    address = new_address()
    page = browsing.page()
    page.goto("/accounts/signup/")
    page.locator("input[name=email]").fill(address)
    page.locator("input[name=password1]").fill(PASSWORD)
    page.locator("input[name=password2]").fill(PASSWORD)
    with page.expect_navigation():
        page.locator("input[name=password2]").press("Enter")
    before = is_signed_in(page)
    page.goto(link_mailed(mailbox, address, "confirm"))
    with page.expect_navigation():
        page.locator("form[action*=confirm-email] button[type=submit]").click()
    if not is_signed_in(page):
        page.goto("/accounts/login/")
        fill_sign_in(page, address, PASSWORD)

    assert not before
    assert is_signed_in(page)
    assert page.request.get("/api/v1/me").json()["email"] == address


def test_a_wrong_password_is_said_and_leads_nowhere(browsing: Browsing) -> None:
    person = new_person("wrong")
    page = browsing.page()
    page.goto("/accounts/login/")
    fill_sign_in(page, person.address, "wrong-password-here")

    expect(page.get_by_text("not correct")).to_be_visible()
    expect(page).to_have_url(re.compile("/accounts/login/"))
    assert not is_signed_in(page)


def test_a_second_factor_is_set_up_and_asked_for_and_a_recovery_code_stands_in(
    browsing: Browsing,
) -> None:
    person = new_person("careful")
    page = browsing.page()
    sign_in(page, person)
    page.goto(TOTP_ACTIVATE)
    prove_again(page)
    secret = page.locator("input[value]:not([type=hidden])").first.input_value()
    page.locator("input[name=code]").fill(totp(secret))
    with page.expect_navigation():
        page.locator("input[name=code]").press("Enter")
    codes = re.findall(r"\b\d{8}\b", page.content())
    with_app, with_code = browsing.page(), browsing.page()
    sign_in(with_code, person)
    asked = not is_signed_in(with_code)
    with_code.locator("input[name=code]").fill(codes[0])
    with with_code.expect_navigation():
        with_code.locator("input[name=code]").press("Enter")
    sign_in(with_app, Person(person.address, person.user_id, secret))

    assert asked
    assert len(codes) == 10
    assert is_signed_in(with_code)
    assert is_signed_in(with_app)
