"""Keys and invitations as people meet them: what is shown once, counted down, behind a #."""

import re

import pytest
from playwright.sync_api import expect

from headrace.standalone.demo_people import Mailbox
from tenants import facade
from tenants.contracts import KeyRejected, Role
from tests.console.browser import Browsing
from tests.console.conftest import MemberPage
from tests.console.people import Cast, fill_sign_in, new_person, sign_in
from tests.headrace.signing_in import PASSWORD

pytestmark = pytest.mark.long
SECRET = re.compile(r"hr-[0-9A-Za-z]{40,}")


def test_a_key_is_shown_once_rotated_and_revoked(cast: Cast, member_page: MemberPage) -> None:
    page = member_page(Role.OWNER)
    page.goto(f"/console/{cast.full_slug}/keys/new")
    page.get_by_label("Name").fill("by browser")
    page.get_by_role("button", name="Create key").click()
    expect(page.get_by_role("heading", name="Key created")).to_be_visible()
    [secret] = set(SECRET.findall(page.content()))
    page.get_by_role("button", name="Copy").first.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    page.get_by_role("link", name="I have stored it").click()
    key_path = page.url
    page.get_by_role("link", name="Rotate").click()
    page.get_by_role("button", name="Rotate key").click()
    expect(page.get_by_role("heading", name="Key rotated")).to_be_visible()
    page.goto(key_path)

    assert copied == secret
    expect(page.locator("[data-until]")).to_have_text(re.compile(r"in 23 h 59 min \d+ s"))
    page.get_by_role("button", name="Revoke", exact=True).click()
    confirm = page.get_by_label("Type by browser to confirm")
    confirm.fill("another")
    expect(page.get_by_role("button", name="Revoke key")).to_be_disabled()
    confirm.fill("by browser")
    page.get_by_role("button", name="Revoke key").click()
    expect(page.get_by_text("by browser is revoked")).to_be_visible()
    with pytest.raises(KeyRejected):
        facade.authenticate(secret)


def test_a_page_that_is_loaded_again_makes_no_second_key(
    cast: Cast, member_page: MemberPage
) -> None:
    page = member_page(Role.OWNER)
    page.goto(f"/console/{cast.full_slug}/keys/new")
    page.get_by_label("Name").fill("only one")
    page.get_by_label("Name").press("Enter")
    expect(page.get_by_role("heading", name="Key created")).to_be_visible()
    page.reload()

    expect(page.get_by_label("Name")).to_have_value("")
    page.goto(f"/console/{cast.full_slug}/keys")
    expect(page.get_by_role("link", name="only one")).to_have_count(1)


def test_what_is_wrong_is_said_without_losing_what_was_typed(
    cast: Cast, browsing: Browsing, member_page: MemberPage
) -> None:
    path = f"/console/{cast.full_slug}/keys/new"
    browsing.expect(422, path)
    page = member_page(Role.OWNER)
    page.goto(path)
    page.get_by_label("Name").fill("kept")
    page.get_by_label("Networks").fill("300.0.0.0/8")
    page.get_by_role("button", name="Create key").click()

    expect(page.locator("#id_cidrs_error")).to_contain_text("Not a network")
    expect(page.get_by_label("Name")).to_have_value("kept")


def test_the_link_of_an_invitation_leads_into_the_organization(
    cast: Cast, browsing: Browsing, member_page: MemberPage, mailbox: Mailbox
) -> None:
    newcomer = new_person("newcomer")
    owner = member_page(Role.OWNER)
    owner.goto(f"/console/{cast.full_slug}/team/invite")
    owner.get_by_label("E-mail address").fill(newcomer.address)
    owner.get_by_role("button", name="Invite").click()
    text = mailbox.wait(newcomer.address, "invited")
    link = text[text.index("/console/invitation#") :].split()[0]
    page = browsing.page()
    page.goto(link)
    expect(page.get_by_role("heading", name=re.compile("^Join"))).to_be_visible()
    shown = page.url
    page.get_by_role("link", name="Sign in").click()
    fill_sign_in(page, newcomer.address, PASSWORD)
    page.get_by_role("button", name="Accept").click()
    page.wait_for_url(f"**/console/{cast.full_slug}/")

    assert "#" not in shown
    assert link.partition("#")[2] not in page.content()


def test_an_invitation_for_somebody_else_says_so(
    cast: Cast, browsing: Browsing, member_page: MemberPage, mailbox: Mailbox
) -> None:
    browsing.expect(403, "/console/invitation")
    invited, other = new_person("invited"), new_person("other")
    owner = member_page(Role.OWNER)
    owner.goto(f"/console/{cast.full_slug}/team/invite")
    owner.get_by_label("E-mail address").fill(invited.address)
    owner.get_by_role("button", name="Invite").click()
    text = mailbox.wait(invited.address, "invited")
    page = browsing.page()
    sign_in(page, other)
    page.goto(text[text.index("/console/invitation#") :].split()[0])
    page.get_by_role("button", name="Accept").click()

    expect(page.get_by_role("alert")).to_contain_text("another address")
    expect(page.get_by_role("button", name="Accept")).to_have_count(0)
