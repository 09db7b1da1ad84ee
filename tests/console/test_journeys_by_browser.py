"""The main journeys through the console, each as a person makes it: in a browser, on a real house.

What the pages say is compared with what the API and the books say, to the last unit.
"""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

import billing.facade
import tenants.facade
from billing.contracts import PICO, QuotaMetric, QuotaPeriod, QuotaScope, QuotaWanted
from billing.facade import decimal_string
from headrace.console_kit.formats import UNKNOWN
from headrace.standalone.demo_people import Mailbox
from tenants.contracts import Role
from tests.console.browser import Browsing
from tests.console.looking import rest
from tests.console.people import Cast
from tests.console.steps import (
    ARRIVES_MS,
    OpenStream,
    ask,
    cells_of,
    check_receipt_page,
    create_key,
    create_project,
    expect_toast,
    found_organization,
    money,
    receipt_of,
    sign_up,
    text_of,
    top_up,
    watch,
    watched,
)
from tests.headrace.signing_in import new_address
from tests.house import LiveHouse, Tenant, wait_until

pytestmark = pytest.mark.long
PageOf = Callable[[Tenant, Role], Page]
STORY = [{"role": "user", "content": "Tell me a very long story about a mill on a river."}]
URGENT = ".notices, .banner-card.is-urgent"
"""What the overview and other pages say first."""
BUDGET_REACHED = re.compile("spend.* (used up|is reached).*refused", re.IGNORECASE)
FORMS = "main form[method=post]"
CONTENTS = """forms => forms.map(one => (
    {action: one.action, fields: Object.fromEntries(new FormData(one))}))"""
ANSWERED = re.compile("answered", re.IGNORECASE)
"""Or not: why is said in the conversation."""
NOT_ALLOWED = "You lack the permission"
DOCUMENTS = 24
"""Enough for some seconds of a model: progress is told once a second."""
REVOKED_WITHIN_S = 2
SLACK_S = 3
"""Of a machine that runs a model beside all this."""


def assert_refused(answer: httpx.Response) -> None:
    assert answer.status_code == 429, answer.text
    assert answer.json()["error"]["code"] == "insufficient_quota"


def token_of(page: Page) -> str:
    """What forms of somebody's pages must carry."""
    [token] = [one["value"] for one in page.context.cookies() if one["name"] == "csrftoken"]
    return token


def editable_pages(tenant: Tenant) -> list[str]:
    """Where an owner finds forms, with a thing of each kind to change."""
    operator = tenants.facade.operator_of(tenant.organization_id)
    wanted = QuotaWanted(QuotaScope.ORGANIZATION, QuotaMetric.SPEND, QuotaPeriod.MONTH, PICO)
    quota_id = billing.facade.set_quota(operator, wanted).quota_id
    hook = tenants.facade.create_webhook_endpoint(operator, "https://hooks.example.com/1")
    key = f"keys/{tenant.key_id}"
    return [
        *("keys/new", key, f"{key}/edit", f"{key}/rotate", "keys/accounts"),
        *("limits/new", f"limits/{quota_id}", "billing/top-up", "billing/settings"),
        *("webhooks/new", f"webhooks/{hook.endpoint.endpoint_id}", "team/invite"),
        *("projects", f"projects/{tenant.project_id}/edit", "settings", "settings/data"),
        *("settings/delete", "jobs/new-batch", "jobs/new-summary", "playground"),
    ]


@pytest.fixture
def acme(house: LiveHouse) -> Tenant:
    """An organization with money, a project and a key."""
    return house.new_tenant()


@pytest.fixture
def page_of(browsing: Browsing) -> PageOf:
    """`page_of(acme, Role.OWNER)`: a page of a member of it, who has just signed in."""

    def make(tenant: Tenant, role: Role) -> Page:
        people = Cast(tenant.slug)
        return people.page(browsing, people.member(role))

    return make


@pytest.fixture(scope="module")
def price_pico(house: LiveHouse) -> int:
    """What `ask` costs, whoever asks first."""
    tenant = house.new_tenant()
    request_id = ask(house, tenant.secret).raise_for_status().headers["x-request-id"]
    receipt = receipt_of(house, tenant.secret, request_id)
    assert receipt["held_pico"] == receipt["amount_pico"]
    return int(receipt["amount_pico"])


def test_from_signing_up_to_the_receipt_of_the_first_request(
    browsing: Browsing, house: LiveHouse, mailbox: Mailbox
) -> None:
    browsing.let_in(house.stripe_url)
    page = browsing.page()
    sign_up(page, mailbox, new_address())
    slug = found_organization(page, "First Journey")
    create_project(page, slug, "Website")
    top_up(page, slug, "25.00")
    assert text_of(page, "Available") == "$25.00"
    secret = create_key(page, slug, "website")
    request_id = ask(house, secret).raise_for_status().headers["x-request-id"]
    receipt = receipt_of(house, secret, request_id)
    page.get_by_role("complementary").get_by_role("link", name="Usage").click()

    expect(page.locator(".stats")).to_contain_text("Requests")
    assert text_of(page, "Requests") == "1"
    assert text_of(page, "Charge") == money(receipt["amount_pico"])
    page.get_by_role("link", name="The requests of this period").click()
    page.get_by_role("table", name="Requests").get_by_role("link").click()
    check_receipt_page(page, receipt)
    page.goto(f"/console/{slug}/billing")
    left_pico = 25 * 10**12 - int(receipt["amount_pico"])
    assert text_of(page, "Balance") == money(left_pico)


def test_a_message_streams_under_a_meter_that_ends_as_its_receipt(
    house: LiveHouse, acme: Tenant, page_of: PageOf
) -> None:
    page = page_of(acme, Role.DEVELOPER)
    page.goto(f"/console/{acme.slug}/playground")
    page.locator("#play-model").select_option(house.model)
    page.locator("#play-max-tokens").fill("40")
    page.locator("#play-message").fill(STORY[0]["content"])
    watch(page, "#play-output")
    page.locator("#play-message").press("Enter")
    expect(page.locator("#play-state")).to_have_text(ANSWERED, timeout=ARRIVES_MS)
    assert page.locator(".play-error .play-text").all_inner_texts() == []
    counts = [int(text.removeprefix("≈ ")) for text in watched(page) if text != UNKNOWN]
    shown = page.locator("#play-cost").get_attribute("data-pico")
    href = page.locator("#play-receipt").get_attribute("href") or ""
    path = f"/api/v1/organizations/{acme.organization_id}/requests/{href.rsplit('/', 1)[1]}"
    receipt = page.request.get(path).json()

    assert len(counts) > 5, "the answer came all at once"
    assert counts == sorted(counts)
    assert counts[-1] == receipt["tokens"]["output"]
    assert shown == receipt["amount_pico"]
    page.locator("#play-receipt").click()
    check_receipt_page(page, receipt)


def test_a_budget_that_is_reached_refuses_and_says_so_until_it_is_raised(
    house: LiveHouse, acme: Tenant, page_of: PageOf, price_pico: int
) -> None:
    page = page_of(acme, Role.OWNER)
    page.goto(f"/console/{acme.slug}/limits")
    page.get_by_role("link", name="Set a budget").click()
    page.get_by_label("Limit", exact=True).fill(decimal_string(price_pico))
    page.get_by_role("button", name="Set the limit").click()
    expect_toast(page, "The limit is set")
    limit_path = page.url
    page.goto(f"/console/{acme.slug}/limits")
    meter = page.get_by_role("table", name="Quotas").locator(".meter-share")
    expect(meter).to_have_text("0 %")
    ask(house, acme.secret).raise_for_status()

    expect(meter).to_contain_text("reached", timeout=ARRIVES_MS)
    assert_refused(ask(house, acme.secret))
    for path in ("", "limits", "billing"):
        page.goto(f"/console/{acme.slug}/{path}")
        expect(page.locator(URGENT)).to_contain_text(BUDGET_REACHED)
    page.goto(limit_path)
    page.get_by_label("Limit", exact=True).fill("1")
    page.get_by_role("button", name="Save").click()
    expect_toast(page, "The limit is changed")
    ask(house, acme.secret).raise_for_status()
    page.goto(f"/console/{acme.slug}/limits")
    expect(page.locator(URGENT)).to_have_count(0)


def test_who_has_used_up_the_balance_is_told_and_pays_in(
    browsing: Browsing, house: LiveHouse, page_of: PageOf, price_pico: int
) -> None:
    browsing.let_in(house.stripe_url)
    tenant = house.new_tenant(credit_pico=price_pico)
    page = page_of(tenant, Role.OWNER)
    ask(house, tenant.secret).raise_for_status()
    assert_refused(ask(house, tenant.secret))
    page.goto(f"/console/{tenant.slug}/")
    expect(page.get_by_text("The balance is used up: requests are refused.")).to_be_visible()
    page.get_by_role("link", name="Open billing").click()
    expect(page.locator(URGENT)).to_contain_text("The balance is used up")
    assert text_of(page, "Available") == "$0.00"
    top_up(page, tenant.slug, "10.00")

    expect(page.locator(URGENT)).to_have_count(0)
    assert text_of(page, "Balance") == "$10.00"
    ask(house, tenant.secret).raise_for_status()


def test_a_job_goes_from_its_upload_to_its_results_under_the_eyes_of_its_owner(
    house: LiveHouse, acme: Tenant, page_of: PageOf, tmp_path: Path
) -> None:
    names = [f"letter-{number:02d}" for number in range(DOCUMENTS)]
    file = tmp_path / "letters.jsonl"
    rows = [{"id": name, "text": f"This is {name}. The mill stands still."} for name in names]
    file.write_text("\n".join(json.dumps(row) for row in rows))
    page = page_of(acme, Role.DEVELOPER)
    page.goto(f"/console/{acme.slug}/jobs")
    page.get_by_role("link", name="New summaries").first.click()
    rest(page)
    page.set_input_files("#upload", file)
    expect(page.locator("[data-uploads] input[name=file_ids]")).to_have_count(1)
    page.get_by_label("Model").select_option(house.model)
    page.get_by_label("Instruction").fill("Summarise in three words.")
    page.get_by_role("button", name="Read and estimate").click()
    state = page.locator("[data-job-state]")
    expect(state).to_have_text("ready", timeout=ARRIVES_MS)
    estimates = {what: number for what, number, _ in cells_of(page, "Estimate against actual")}
    page.get_by_role("button", name="Start").click()
    expect_toast(page, "Started")
    watch(page, ".progress-words")
    expect(state).to_have_text("completed", timeout=2 * ARRIVES_MS)
    progress = watched(page)
    account = {what: number for what, _, number in cells_of(page, "Estimate against actual")}
    with page.expect_download() as found:
        page.get_by_role("link", name="JSON lines").click()
    job_id = page.locator(".lead code").inner_text()
    client = house.http(acme.secret)
    told = client.get(f"/api/v1/summaries/{job_id}").raise_for_status().json()
    results = client.get(f"/api/v1/summaries/{job_id}/results").raise_for_status().text

    assert estimates["Prompt tokens"] == account["Prompt tokens"] != UNKNOWN
    assert len(progress) > 2, "its progress was not to be seen"
    assert progress[-1] == f"{DOCUMENTS} of {DOCUMENTS}"
    assert Path(found.value.path()).read_text() == results
    assert sorted(json.loads(line)["custom_id"] for line in results.splitlines()) == names
    assert account["Cost"] == money(told["charge"]["amount_pico"])


def test_revoking_a_key_in_the_console_stops_its_open_stream(
    house: LiveHouse, acme: Tenant, page_of: PageOf
) -> None:
    page = page_of(acme, Role.DEVELOPER)
    page.goto(f"/console/{acme.slug}/keys/{acme.key_id}")
    page.get_by_role("button", name="Revoke", exact=True).click()
    page.get_by_label("Type test to confirm").fill("test")
    stream = OpenStream(house, acme.secret, messages=STORY, max_completion_tokens=1500)
    wait_until(lambda: stream.tokens > 3, timeout_s=60)
    page.get_by_role("button", name="Revoke key").click()
    clicked_at = time.monotonic()
    stream.wait_for_end()
    expect_toast(page, "test is revoked")

    assert stream.error["code"] == "invalid_api_key"
    assert stream.ended_at - clicked_at < REVOKED_WITHIN_S + SLACK_S
    assert ask(house, acme.secret).status_code == 401
    page.goto(f"/console/{acme.slug}/requests/{stream.request_id}")
    expect(page.get_by_text("key_revoked")).to_be_visible()
    [_, _, output, charge] = cells_of(page, "Tokens and prices")
    assert 0 < int(output[1]) < 1500
    assert charge[3] != "$0.00"


def test_a_viewer_is_shown_no_form_and_is_refused_whatever_they_send(
    browsing: Browsing, acme: Tenant, page_of: PageOf
) -> None:
    owner, viewer = page_of(acme, Role.OWNER), page_of(acme, Role.VIEWER)
    for page in editable_pages(acme):
        path = f"/console/{acme.slug}/{page}"
        owner.goto(path)
        forms: list[dict[str, Any]] = owner.locator(FORMS).evaluate_all(CONTENTS)
        browsing.expect(403, path)
        viewer.goto(path)
        shown = viewer.locator(FORMS).evaluate_all(CONTENTS)
        assert (len(forms) > 0, shown) == (True, []), path
        for form in forms:
            sent = {**form["fields"], "csrfmiddlewaretoken": token_of(viewer)}
            answer = viewer.request.post(form["action"], form=sent)
            assert answer.status == 403, form
            assert NOT_ALLOWED in answer.text(), form
