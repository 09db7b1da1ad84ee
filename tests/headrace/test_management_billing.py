"""Balance, credit, top-ups and documents at the management API's door."""

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest
from django.conf import settings
from pypdf import PdfReader

from billing.contracts import PICO, UsageCounts
from billing.facade import complete_topup, set_credit_limit, settle
from billing.invoices.closing import close_period
from billing.invoices.periods import month_of
from tenants.contracts import Permission
from tests.billing.cast import Tenant, make_tenant, used
from tests.billing.till import Till, open_till
from tests.books import rows
from tests.headrace.door import Door, admin_key

CENT = PICO // 100
Json = dict[str, Any]
KEY = {"idempotency-key": "order 1"}


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """A tenant with five in credit who may owe a hundred."""
    tenant = make_tenant("acme")
    set_credit_limit(tenant.organization_id, 100 * PICO)
    return tenant


@pytest.fixture
def till() -> Iterator[Till]:
    """Who takes payments."""
    with open_till() as till:
        yield till


def ask(
    tenant: Tenant, method: str, path: str, body: Json | None = None, **options: Any
) -> httpx.Response:
    """With an admin key of the tenant, under its routes."""
    secret = admin_key(tenant.organization_id, Permission.BILLING_READ, Permission.BILLING_WRITE)
    if body is not None:
        options["json"] = body
    url = f"/api/v1/organizations/{tenant.organization_id}/{path}"
    return Door(secret).request(method, url, **options)


def test_a_balance_says_what_may_still_be_spent(acme: Tenant) -> None:
    acme.held(CENT, 0)

    told = ask(acme, "GET", "billing").json()

    assert told == {
        "object": "billing.balance",
        "currency": "USD",
        "balance": {"amount_pico": str(5 * PICO), "amount": "5.00"},
        "held": {"amount_pico": str(CENT), "amount": "0.01"},
        "available": {"amount_pico": str(105 * PICO - CENT), "amount": "104.99"},
        "credit_limit": {"amount_pico": str(100 * PICO), "amount": "100.00"},
    }


def test_credits_are_as_of_now(acme: Tenant) -> None:
    settle([used(acme.held(CENT, 0), UsageCounts(CENT, 0, 0))])

    [grant] = ask(acme, "GET", "credits").json()["data"]

    assert (grant["category"], grant["amount"]["amount"]) == ("promotional", "5.00")
    assert grant["remaining"]["amount"] == "4.99"


def test_a_top_up_is_begun_once_and_credited_when_it_is_paid(acme: Tenant, till: Till) -> None:
    body = {"amount": "20.00", "return_url": f"{settings.PUBLIC_URL}/done"}

    first = ask(acme, "POST", "topups", body, headers=KEY)
    again = ask(acme, "POST", "topups", body, headers=KEY)
    [top_up_id] = till.begun
    before = ask(acme, "GET", f"topups/{top_up_id}").json()
    complete_topup(f"pay_{top_up_id.hex}", 20 * PICO)
    after = ask(acme, "GET", f"topups/{top_up_id}").json()

    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert first.json()["payment_url"] == f"https://pay.example/{top_up_id}"
    assert "pay_" not in first.text.replace("payment_url", "")
    assert (before["state"], after["state"]) == ("pending", "succeeded")
    assert ask(acme, "GET", "billing").json()["balance"]["amount"] == "25.00"
    assert len(ask(acme, "GET", "topups").json()["data"]) == 1


def test_money_comes_in_under_a_key_only(acme: Tenant, till: Till) -> None:
    refused = ask(acme, "POST", "topups", {"amount": "20"})

    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "missing_header")
    assert ask(acme, "GET", "topups").json()["data"] == []


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example/", "{}.evil.example/", "{}@evil.example/", "{}9/"]
)
def test_after_paying_people_come_back_to_us(acme: Tenant, till: Till, elsewhere: str) -> None:
    body = {"amount": "20.00", "return_url": elsewhere.format(settings.PUBLIC_URL)}
    refused = ask(acme, "POST", "topups", body, headers=KEY)

    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "return_url")
    assert till.begun == []


def test_a_key_is_of_one_amount(acme: Tenant, till: Till) -> None:
    ask(acme, "POST", "topups", {"amount": "20"}, headers=KEY)

    other = ask(acme, "POST", "topups", {"amount": "30"}, headers=KEY)

    assert (other.status_code, other.json()["error"]["type"]) == (422, "idempotency_error")
    assert len(till.begun) == 1


@pytest.mark.parametrize(
    "amount", ["0", "-5", "0.001", "1e3", "ten", "20.005", "1000001", "\u0662\u0660", 20, 2.5]
)
def test_odd_amounts_are_refused(acme: Tenant, till: Till, amount: object) -> None:
    refused = ask(acme, "POST", "topups", {"amount": amount}, headers=KEY)

    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "amount")
    assert till.begun == []


def test_a_recharge_is_set_and_read(acme: Tenant) -> None:
    rule = {"enabled": True, "threshold": "5", "amount": "20.00", "month_max": "100"}

    told = ask(acme, "PUT", "billing/recharge", rule).json()

    assert told["enabled"] is True
    assert told["month_max"] == {"amount_pico": str(100 * PICO), "amount": "100.00"}
    assert ask(acme, "GET", "billing/recharge").json() == told
    odd = ask(acme, "PUT", "billing/recharge", {**rule, "month_max": "10"})
    assert odd.status_code == 400
    assert ask(acme, "GET", "billing/recharge").json() == told
    assert rows(
        "SELECT count(*) FROM tenants_audit_log WHERE organization_id = %s"
        " AND action = 'billing.recharge_changed'",
        acme.organization_id,
    ) == [(1,)]


def test_settings_change_by_the_field_and_tax_is_not_the_tenants(acme: Tenant) -> None:
    ask(acme, "PATCH", "billing/settings", {"low_balance": "2.5", "group_lines_by": "project"})
    told = ask(acme, "PATCH", "billing/settings", {"legal_name": "Acme", "tax_id": "X1"}).json()

    assert told["low_balance"]["amount"] == "2.50"
    assert (told["group_lines_by"], told["legal_name"], told["tax_id"]) == ("project", "Acme", "X1")
    for body in ({"tax_ppm": 0}, {"group_lines_by": "key"}, {"email": "nobody"}):
        assert ask(acme, "PATCH", "billing/settings", body).status_code == 400
    cleared = ask(acme, "PATCH", "billing/settings", {"low_balance": None}).json()
    assert cleared["low_balance"] is None
    assert cleared["legal_name"] == "Acme"


def test_a_document_is_read_with_its_lines_and_on_paper(acme: Tenant) -> None:
    dear = acme.with_prices(CENT, CENT, CENT)
    settle([used(dear.held(700, 0), UsageCounts(700, 0, 0))])
    period = month_of(datetime.now(UTC), ZoneInfo("UTC"))
    close_period(acme.organization_id, period, "UTC", period.closes_at())

    [listed] = ask(acme, "GET", "invoices").json()["data"]
    whole = ask(acme, "GET", f"invoices/{listed['id']}").json()
    paper = ask(acme, "GET", f"invoices/{listed['id']}.pdf")

    assert (listed["kind"], listed["number"]) == ("invoice", 1)
    assert listed["total"] == listed["due"] == {"amount_pico": str(2 * PICO), "amount": "2.00"}
    assert [line["kind"] for line in whole["lines"]] == ["usage", "credit", "grant"]
    assert whole["lines"][0]["tokens"] == 700
    assert paper.headers["content-type"] == "application/pdf"
    assert "Invoice 1" in PdfReader(io.BytesIO(paper.content)).pages[0].extract_text()
    assert ask(acme, "GET", f"invoices/{listed['id']}.pdf").content == paper.content


def test_another_tenants_documents_are_not_there(acme: Tenant, till: Till) -> None:
    globex = make_tenant("globex")
    ask(acme, "POST", "topups", {"amount": "20"}, headers=KEY)
    [top_up_id] = till.begun

    assert ask(globex, "GET", f"topups/{top_up_id}").status_code == 404
    assert ask(globex, "GET", "topups").json()["data"] == []
