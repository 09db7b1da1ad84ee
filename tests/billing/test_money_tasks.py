"""The tasks of money: what the beat wakes, with and without somebody who takes payments."""

from datetime import UTC, datetime, timedelta

import pytest

from billing.contracts import PICO
from billing.facade import (
    grant_credit,
    invoices,
    save_billing_settings,
    save_recharge,
    top_ups,
    use_payment_provider,
)
from billing.tasks import close_periods, tend_credit
from tenants.facade import operator_of
from tests.billing.cast import Tenant, make_tenant
from tests.billing.till import open_till
from tests.books import rows
from tests.house import wait_until


@pytest.fixture
def poor(django_database: object) -> Tenant:
    """A tenant without credit, who is to be warned and recharged."""
    tenant = make_tenant(credit_pico=0)
    actor = operator_of(tenant.organization_id)
    save_billing_settings(actor, PICO, "")
    save_recharge(
        actor,
        is_enabled=True,
        threshold_pico=PICO,
        amount_pico=2 * PICO,
        month_max_pico=4 * PICO,
    )
    return tenant


def warned(tenant: Tenant) -> int:
    """How often the tenant was told of a low balance."""
    [(times,)] = rows(
        "SELECT count(*) FROM tenants_outbox_event WHERE organization_id = %s"
        " AND kind = 'balance.low'",
        tenant.organization_id,
    )
    return int(times)


def test_the_minutes_task_warns_and_recharges(poor: Tenant) -> None:
    with open_till() as till:
        tend_credit()
        tend_credit()

    [recharge] = top_ups(poor.organization_id)
    assert till.charged.count(recharge.top_up_id) == 1
    assert warned(poor) == 1


def test_without_payments_it_warns_all_the_same(poor: Tenant) -> None:
    with open_till():
        use_payment_provider(None)
        tend_credit()

    assert warned(poor) == 1
    assert top_ups(poor.organization_id) == []


def test_the_minutes_task_begins_what_is_due(poor: Tenant) -> None:
    soon = datetime.now(UTC) + timedelta(milliseconds=50)
    grant_credit(poor.organization_id, 7, "soon", effective_at=soon)
    wait_until(lambda: datetime.now(UTC) > soon)
    with open_till():
        tend_credit()

    assert poor.balance().posted_pico == 7


def test_the_hours_task_leaves_a_month_that_goes_on(poor: Tenant) -> None:
    grant_credit(poor.organization_id, 7, "now")

    close_periods()

    assert invoices(poor.organization_id) == []
