"""Balance, top-ups, documents, credit, prices and settings on pages: the API's numbers exactly."""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from html import unescape
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import httpx
import pytest
from django.conf import settings
from pypdf import PdfReader

import tenants.facade
from billing.contracts import PICO, ServiceTier, TokenClass, UsageCounts
from billing.facade import (
    complete_topup,
    fail_topup,
    grant_credit,
    hold,
    profile_of,
    recharge_settings,
    set_credit_limit,
    set_price,
    settle,
    top_ups,
)
from billing.invoices.closing import close_period
from billing.invoices.periods import month_of
from headrace.console_kit.formats import money_exact
from tenants.contracts import Role
from tests.billing.cast import Tenant, make_tenant, used
from tests.billing.till import Till, open_till
from tests.headrace.door import Door, member_of

CENT = PICO // 100
TAGS = re.compile(r"<[^>]*>")


@dataclass(frozen=True)
class Acme:
    """A tenant of the money tests, and its owner at the door."""

    tenant: Tenant
    slug: str
    owner: Door

    def page(self, path: str, status: int = 200, **options: Any) -> httpx.Response:
        """A page of theirs."""
        answer = self.owner.get(f"/console/{self.slug}/{path}", **options)
        assert answer.status_code == status, answer.text
        return answer

    def send(self, path: str, do: str, **fields: str) -> httpx.Response:
        """A form of theirs."""
        return self.owner.post(f"/console/{self.slug}/{path}", data={"do": do, **fields})

    def api(self, path: str) -> Any:
        """What the API says of the same."""
        answer = self.owner.get(f"/api/v1/organizations/{self.tenant.organization_id}/{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def all_of(self, path: str) -> list[Any]:
        """Every row of a list, page by page."""
        rows: list[Any] = []
        while True:
            after = f"&after={rows[-1]['id']}" if rows else ""
            page = self.api(f"{path}?limit=100{after}")
            rows += page["data"]
            if not page["has_more"]:
                return rows


@pytest.fixture
def acme(django_database: object) -> Acme:
    """A tenant with five in credit and its owner."""
    tenant = make_tenant("acme")
    [membership_slug] = [
        tenants.facade.read_organization(tenants.facade.operator_of(tenant.organization_id)).slug
    ]
    return Acme(tenant, membership_slug, member_of(tenant.organization_id, Role.OWNER))


@pytest.fixture
def till() -> Iterator[Till]:
    """Who takes payments."""
    with open_till() as till:
        yield till


def words(answer: httpx.Response) -> str:
    """What a page says, in one line."""
    return " ".join(unescape(TAGS.sub(" ", answer.text)).split())


def exact(money: dict[str, str]) -> str:
    """An amount of the API as pages write it in full."""
    return money_exact(int(money["amount_pico"]), "USD")


def shown(answer: httpx.Response, tile: str) -> str:
    """The exact amount of a tile: what stands there, or on hover."""
    [part] = re.findall(rf'id="{tile}".*?stat-value">(.*?)</div>', answer.text, re.DOTALL)
    hover = re.search(r'title="([^"]*)"', part)
    return hover[1] if hover else " ".join(TAGS.sub(" ", part).split())


def test_the_balance_is_the_apis_to_the_last_unit(acme: Acme) -> None:
    set_credit_limit(acme.tenant.organization_id, 100 * PICO)
    acme.tenant.held(12_345_678_901, 0)
    settle([used(acme.tenant.held(7, 0), UsageCounts(7, 0, 0))])

    page, told = acme.page("billing"), acme.api("billing")

    for tile, name in (
        *(("available", "available"), ("balance", "balance")),
        *(("held", "held"), ("credit-limit", "credit_limit")),
    ):
        assert shown(page, tile) == exact(told[name]), tile
    assert "refused" not in words(page).replace("Requests are refused when", "")


def test_who_has_used_the_balance_up_is_led_to_a_top_up_and_has_credit_again(
    acme: Acme, till: Till
) -> None:
    acme.tenant.held(5 * PICO, 0)
    [refused] = hold([acme.tenant.request()])
    before = acme.page("billing")
    [href] = re.findall(r'is-urgent.*?href="([^"]*)"', before.text, re.DOTALL)
    form = acme.owner.get(href)
    [key] = re.findall(r'name="key" value="([^"]*)"', form.text)
    sent = [acme.send("billing/top-up", "pay", amount="20", key=key) for _ in range(2)]
    waiting = acme.page("billing?top_up=done")
    [top_up] = top_ups(acme.tenant.organization_id)
    complete_topup(f"pay_{top_up.top_up_id.hex}", 20 * PICO)
    after, told = acme.page("billing?top_up=done"), acme.api("billing")
    [again] = hold([acme.tenant.request()])

    assert refused.refusal is not None
    assert "The balance is used up: requests are refused" in words(before)
    assert {one.headers["location"] for one in sent} == {f"https://pay.example/{top_up.top_up_id}"}
    assert [one.status_code for one in sent] == [303, 303]
    assert "$20.00 are on their way" in words(waiting)
    assert 'hx-trigger="load delay:2s"' in waiting.text
    assert "$20.00 have arrived" in words(after)
    assert "load delay" not in after.text
    assert "is-urgent" not in after.text
    assert shown(after, "available") == exact(told["available"]) == "$20.00"
    assert again.refusal is None


def test_a_payment_that_was_left_or_failed_is_said(acme: Acme, till: Till) -> None:
    acme.send("billing/top-up", "pay", amount="20", key="one")
    left = acme.page("billing?top_up=cancelled")
    [top_up] = top_ups(acme.tenant.organization_id)
    fail_topup(f"pay_{top_up.top_up_id.hex}", "card_declined")
    failed = acme.page("billing?top_up=done")

    assert "Nothing was paid" in words(left)
    assert "The payment of $20.00 failed" in words(failed)
    assert "card declined" in words(failed)


def test_a_payment_that_was_left_can_be_continued_by_who_may_pay(acme: Acme, till: Till) -> None:
    acme.send("billing/top-up", "pay", amount="20", key="one")
    [top_up] = top_ups(acme.tenant.organization_id)
    viewer = member_of(acme.tenant.organization_id, Role.VIEWER)
    sent = {"do": "continue", "top_up": str(top_up.top_up_id)}

    page = acme.page("billing")
    continued = acme.send("billing", "continue", top_up=str(top_up.top_up_id))
    refused = viewer.post(f"/console/{acme.slug}/billing", data=sent)
    complete_topup(f"pay_{top_up.top_up_id.hex}", 20 * PICO)
    after = acme.page("billing")
    again = acme.send("billing", "continue", top_up=str(top_up.top_up_id))

    assert re.search(r"A top-up of \$20.00 is not paid yet. It was begun \d+ s ago", words(page))
    assert f'name="top_up" value="{top_up.top_up_id}"' in page.text
    assert continued.status_code == 303
    assert continued.headers["location"] == f"https://pay.example/{top_up.top_up_id}"
    assert refused.status_code == 403
    assert till.begun == [top_up.top_up_id]
    assert "not paid yet" not in words(after)
    assert again.headers["location"] == f"/console/{acme.slug}/billing"
    assert "This top-up was paid, or its page has closed" in words(acme.page("billing"))


def test_a_payment_on_its_way_is_not_asked_for_again(acme: Acme, till: Till) -> None:
    acme.send("billing/top-up", "pay", amount="20", key="one")

    page = acme.page("billing?top_up=done")

    assert "$20.00 are on their way" in words(page)
    assert "Continue payment" not in page.text


def test_a_payment_is_looked_at_a_bounded_number_of_times(acme: Acme, till: Till) -> None:
    acme.send("billing/top-up", "pay", amount="20", key="one")

    assert "looks=5" in acme.page("billing?top_up=done&looks=4").text
    for looks in ("20", "9999999999", "x", "-1"):
        page = acme.page(f"billing?top_up=done&looks={looks}")
        assert ("looks=" in page.text) == (not looks.isdecimal() or looks == "9999999999"), looks


@pytest.mark.parametrize(
    "amount", ["", "0.5", "1.234", "-5", "1e3", "10,50", "2000000", "\u0662\u0660"]
)
def test_an_amount_that_cannot_be_paid_is_refused_beside_its_field(
    acme: Acme, till: Till, amount: str
) -> None:
    answer = acme.send("billing/top-up", "pay", amount=amount, key="one")

    assert answer.status_code == 422
    assert 'aria-invalid="true"' in answer.text
    assert f'value="{amount}"' in answer.text or not amount
    assert top_ups(acme.tenant.organization_id) == []


def test_a_form_sent_again_with_another_amount_pays_nothing(acme: Acme, till: Till) -> None:
    acme.send("billing/top-up", "pay", amount="20", key="one")

    answer = acme.send("billing/top-up", "pay", amount="30", key="one")

    assert answer.status_code == 409
    assert "sent before, with another amount" in words(answer)
    assert 'name="key" value="one"' not in answer.text
    assert [one.amount_pico for one in top_ups(acme.tenant.organization_id)] == [20 * PICO]


def test_without_a_provider_nothing_is_paid_and_the_page_says_so(acme: Acme) -> None:
    answer = acme.send("billing/top-up", "pay", amount="20", key="one")

    assert answer.status_code == 503
    assert "No payment provider is set up here. Nothing was paid." in words(answer)


def test_people_come_back_to_the_billing_page(acme: Acme) -> None:
    asked: list[str] = []

    class Listener(Till):
        def begin(self, top_up: Any, return_url: str) -> Any:
            asked.append(return_url)
            return super().begin(top_up, return_url)

    from billing.facade import use_payment_provider

    use_payment_provider(Listener())
    try:
        acme.send("billing/top-up", "pay", amount="20", key="one")
    finally:
        use_payment_provider(None)

    assert asked == [f"{settings.PUBLIC_URL}/console/{acme.slug}/billing"]


def test_a_document_reads_as_the_api_and_the_paper_do(acme: Acme) -> None:
    tenant = acme.tenant.with_prices(CENT, CENT, CENT // 3)
    set_credit_limit(tenant.organization_id, 100 * PICO)
    settle([used(tenant.held(700, 100), UsageCounts(700, 0, 100))])
    period = month_of(datetime.now(UTC), ZoneInfo("UTC"))
    issued = close_period(tenant.organization_id, period, "UTC", period.closes_at())

    listed = words(acme.page("billing/invoices"))
    page = words(acme.page(f"billing/invoices/{issued.invoice_id}"))
    told = acme.api(f"invoices/{issued.invoice_id}")
    paper = acme.page(f"billing/invoices/{issued.invoice_id}.pdf")

    amounts = [told[name] for name in ("exact", "net", "total", "due")]
    amounts += [line[name] for line in told["lines"] for name in ("exact", "amount")]
    for money in amounts:
        assert exact(money) in page
    assert f"Invoice {told['number']}" in listed
    assert exact(told["due"]) in listed
    assert paper.headers["content-type"] == "application/pdf"
    text = "\n".join(one.extract_text() for one in PdfReader(io.BytesIO(paper.content)).pages)
    assert f"Invoice {told['number']}" in text
    api_paper = acme.owner.get(
        f"/api/v1/organizations/{tenant.organization_id}/invoices/{issued.invoice_id}.pdf"
    )
    assert paper.content == api_paper.content


def test_credit_is_listed_with_what_is_left(acme: Acme) -> None:
    grant_credit(acme.tenant.organization_id, 3 * PICO, "second")
    settle([used(acme.tenant.held(CENT, 0), UsageCounts(CENT, 0, 0))])

    page = acme.page("billing/credits")

    for grant in acme.api("credits")["data"]:
        for name in ("amount", "remaining"):
            assert exact(grant[name]) in page.text, name
    assert "in force" in words(page)


def test_prices_are_those_in_force_with_those_before_and_to_come(acme: Acme) -> None:
    tenant = acme.tenant.with_prices(150_000, 75_000, 600_000)
    model = tenant.quote.offer.public_id
    set_price(model, ServiceTier.INTERACTIVE, TokenClass.INPUT, 160_000)

    page = acme.page(f"billing/prices?model={model}")
    told = [one for one in acme.all_of("models") if one["id"] == model]
    history = acme.api(f"prices?model={model}")["data"]

    said = words(page)
    assert f"{model} interactive $0.16 $0.075 $0.16 $0.60" in said
    assert [one["interactive"]["input"] for one in told] == ["0.16"]
    assert len(history) == said.count(f"{model} interactive ") - 1
    for price in history:
        assert f"${price['per_million_tokens']}" in said
    assert "past" in said


def test_settings_are_saved_each_by_itself(acme: Acme) -> None:
    tenant_id = acme.tenant.organization_id
    answers = [
        acme.send(
            "billing/settings",
            "recharge",
            enabled="on",
            threshold="5",
            amount="20",
            month_max="60.50",
        ),
        acme.send("billing/settings", "warning", low_balance="2.50", group="tag", tag="team"),
        acme.send("billing/settings", "profile", legal_name="Acme <Ltd>", address="Dam 1\nBerlin"),
    ]
    rule, profile = recharge_settings(tenant_id), profile_of(tenant_id)
    told = acme.api("billing/settings")

    assert [one.status_code for one in answers] == [303, 303, 303]
    assert (rule.is_enabled, rule.threshold_pico, rule.amount_pico, rule.month_max_pico) == (
        *(True, 5 * PICO, 20 * PICO),
        60 * PICO + 50 * CENT,
    )
    assert (told["low_balance"]["amount"], told["group_lines_by"]) == ("2.50", "tag:team")
    assert (profile.legal_name, profile.address) == ("Acme <Ltd>", "Dam 1\nBerlin")
    page = acme.page("billing/settings")
    assert "Acme &lt;Ltd&gt;" in page.text
    assert 'value="60.50"' in page.text


def test_a_field_left_as_it_was_keeps_what_another_person_wrote(acme: Acme) -> None:
    acme.send("billing/settings", "profile", legal_name="Acme", tax_id="DE1")

    acme.send("billing/settings", "profile", legal_name="Acme", tax_id="DE2")

    assert profile_of(acme.tenant.organization_id).legal_name == "Acme"
    assert profile_of(acme.tenant.organization_id).tax_id == "DE2"


@pytest.mark.parametrize(
    ("do", "fields", "at_fault"),
    [
        ("recharge", {"enabled": "on", "threshold": "1", "amount": "5"}, "month_max"),
        (
            "recharge",
            {"enabled": "on", "threshold": "1", "amount": "5", "month_max": "4"},
            "month_max",
        ),
        (
            "recharge",
            {"enabled": "on", "threshold": "1", "amount": "5.001", "month_max": "9"},
            "amount",
        ),
        ("warning", {"low_balance": "much"}, "low_balance"),
        ("warning", {"group": "tag", "tag": "a b"}, "tag"),
        ("profile", {"email": "nobody"}, "email"),
    ],
)
def test_settings_that_cannot_be_are_refused_beside_their_field(
    acme: Acme, do: str, fields: dict[str, str], at_fault: str
) -> None:
    before = (acme.api("billing/settings"), acme.api("billing/recharge"))

    answer = acme.send("billing/settings", do, **fields)

    assert answer.status_code == 422
    assert re.search(rf'name="{at_fault}"[^>]*aria-invalid="true"', answer.text)
    assert (acme.api("billing/settings"), acme.api("billing/recharge")) == before


def test_a_low_balance_and_a_failing_recharge_are_said(acme: Acme, till: Till) -> None:
    acme.send("billing/settings", "warning", low_balance="50")

    assert "The balance is below $50.00" in words(acme.page("billing"))


def test_an_empty_account_teaches_what_will_be_there(django_database: object) -> None:
    tenant = make_tenant(f"new-{uuid4().hex[:6]}", credit_pico=0)
    slug = tenants.facade.read_organization(tenants.facade.operator_of(tenant.organization_id)).slug
    acme = Acme(tenant, slug, member_of(tenant.organization_id, Role.OWNER))

    assert "No documents yet" in words(acme.page("billing/invoices"))
    assert "No credit yet" in words(acme.page("billing/credits"))
    assert "Nothing was paid in yet" in words(acme.page("billing"))
