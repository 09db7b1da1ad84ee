"""The operator's pages of tenants show what the tenant's own books say, to the last unit."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from django.db import ProgrammingError

from billing.contracts import PICO, ServiceTier, UsageCounts
from billing.facade import (
    balance,
    hold,
    is_demo,
    keep_out_of_stripe,
    roll_up,
    set_alias,
    set_credit_limit,
    set_price,
    settle,
    tenant_accounts,
    usage_of_all,
    usage_overview,
)
from headrace.console_kit import formats
from headrace.gateway.request_ids import public_request_id
from tenants.facade import all_tenants, operator_of, read_organization
from tests.billing.cast import PENNY_MODEL, Tenant, make_tenant, used
from tests.console.operators import new_staff, operator
from tests.headrace.door import new_user

pytestmark = pytest.mark.usefixtures("django_database")


def spend(tenant: Tenant) -> None:
    """Two requests settled: one counted in the rollup, one not yet."""
    for is_counted in (True, False):
        request = replace(tenant.request(), end_user="ann")
        hold([request])
        settle([used(request, UsageCounts(60, 10, 40))])
        if is_counted:
            roll_up()


def test_the_list_says_what_each_tenants_own_overview_says() -> None:
    tenant = make_tenant("acme", credit_pico=50 * PICO)
    spend(tenant)
    now = datetime.now(UTC)
    overview = usage_overview(tenant.organization_id, now, "UTC")

    [account] = tenant_accounts(new_staff(), {tenant.organization_id: "UTC"}, now).values()

    assert overview.month.requests == 2
    assert overview.month.charge_pico > 0
    assert account.charged_pico == overview.month.charge_pico
    own = balance(tenant.organization_id)
    assert (account.posted_pico, account.held_pico) == (own.posted_pico, own.held_pico)


def test_usage_of_all_is_the_sum_of_the_tenants_own() -> None:
    tenant = make_tenant("acme", credit_pico=50 * PICO)
    spend(tenant)
    now = datetime.now(UTC)
    month = usage_overview(tenant.organization_id, now, "UTC").month

    rows = usage_of_all(new_staff(), month.start_at, month.end_at)

    ours = [row for row in rows if row.organization_id == tenant.organization_id]
    assert sum(row.requests for row in ours) == month.requests
    assert sum(row.tokens for row in ours) == month.tokens
    assert sum(row.charge_pico for row in ours) == month.charge_pico


@pytest.mark.parametrize("is_staff", [True, False])
def test_the_database_itself_refuses_whoever_is_no_operator(is_staff: bool) -> None:
    person = new_staff(has_factor=False) if is_staff else new_user()
    now = datetime.now(UTC)
    for ask in (
        lambda: all_tenants(person),
        lambda: tenant_accounts(person, {uuid4(): "UTC"}, now),
        lambda: usage_of_all(person, now, now),
    ):
        with pytest.raises(ProgrammingError, match="for operators"):
            ask()


def test_the_page_finds_a_tenant_and_leads_to_it() -> None:
    tenant = make_tenant("findme", credit_pico=50 * PICO)
    set_credit_limit(tenant.organization_id, 7 * PICO)
    spend(tenant)
    door = operator()
    slug = read_organization(operator_of(tenant.organization_id)).slug

    listed = door.get("/operator/tenants", params={"q": slug})
    one = door.get(f"/operator/tenants/{tenant.organization_id}")

    assert f'href="/operator/tenants/{tenant.organization_id}"' in listed.text
    own = balance(tenant.organization_id)
    month = usage_overview(tenant.organization_id, datetime.now(UTC), "UTC").month
    for amount_pico in (own.posted_pico, 7 * PICO, month.charge_pico):
        shown = formats.money(amount_pico, own.currency)
        assert shown in listed.text
        assert shown in one.text


def test_a_search_for_nobody_says_so() -> None:
    answer = operator().get("/operator/tenants", params={"q": uuid4().hex})

    assert answer.status_code == 200
    assert "No tenant has this" in answer.text


def test_a_request_is_found_by_its_id_and_shows_its_charge() -> None:
    tenant = make_tenant("asks", credit_pico=50 * PICO)
    held = tenant.held()
    settle([used(held, UsageCounts(60, 0, 40))])
    page = f"/operator/tenants/{tenant.organization_id}"
    door = operator()

    found = door.get(page, params={"request": public_request_id(held.request_id)})
    assert found.status_code == 303
    shown = door.get(found.headers["location"])

    assert formats.money(100, "USD") in shown.text
    nonsense = door.get(page, params={"request": "nonsense"})
    assert nonsense.status_code == 422
    assert "This is no request" in nonsense.text


def test_only_what_was_kept_out_of_stripe_is_marked_as_demo() -> None:
    tenant = make_tenant("real")
    page = f"/operator/tenants/{tenant.organization_id}"
    door = operator()

    assert is_demo(tenant.organization_id) is False
    assert "badge-blue" not in door.get(page).text
    keep_out_of_stripe(tenant.organization_id)

    assert is_demo(tenant.organization_id) is True
    assert "badge-blue" in door.get(page).text


def test_what_was_agreed_with_a_tenant_is_on_its_page() -> None:
    tenant = make_tenant("vip")
    door, page = operator(), f"/operator/tenants/{tenant.organization_id}"
    before = door.get(page).text
    assert "It pays what the list says." in before
    assert "It has no names of its own for models." in before
    set_price(
        *(PENNY_MODEL, ServiceTier.INTERACTIVE, "input", 70_000),
        organization_id=tenant.organization_id,
    )
    set_alias(operator_of(tenant.organization_id), "gpt-x", PENNY_MODEL)

    shown = door.get(page).text

    assert "$0.07" in shown
    assert "gpt-x" in shown
