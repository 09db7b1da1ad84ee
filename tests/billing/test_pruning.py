"""Old counters, messages and exports go, no earlier than they may; the books stay as they are."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections

from billing.contracts import PICO, UsageCounts
from billing.facade import reconcile, replay, roll_up, set_daily_tokens, settle
from billing.pruning import PRUNABLE, prune
from billing.tasks import prune_old
from tenants.facade import tenant_scope
from tests.billing.cast import Tenant, make_tenant, used
from tests.books import rows
from tests.isolation.stripe_traces import leave_stripe_traces

OLD = timedelta(days=399)
"""More than thirteen months, whatever months they are; the other is less."""
YOUNG = timedelta(days=392)
OWNED = {"billing_stripe_message": "signature"}
"""What says whose a row is where no tenant is known: our own trace signs by its tenant."""


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """A tenant with usage under a quota, and with a message and exports of Stripe's."""
    tenant = make_tenant("acme")
    set_daily_tokens(tenant.organization_id, 1_000_000)
    settle([used(tenant.held(), UsageCounts(50, 10, 40))])
    roll_up()
    leave_stripe_traces(tenant)
    return tenant


def as_owner(tenant: Tenant, statement: str, *parameters: datetime) -> None:
    """A change that no role of the house may make."""
    with tenant_scope(tenant.organization_id, "owner"), connections["owner"].cursor() as cursor:
        cursor.execute(statement, parameters)


def aged(tenant: Tenant, age: timedelta) -> None:
    """Every prunable row of the tenant's is so old, and done with."""
    at = datetime.now(UTC) - age
    as_owner(tenant, "UPDATE billing_quota_counter SET window_start = %s", at)
    as_owner(tenant, "UPDATE billing_stripe_event SET applied_at = %s", at)
    as_owner(
        tenant,
        "UPDATE billing_stripe_message SET outcome = 'rejected', ended_at = %s"
        f" WHERE signature = '{tenant.organization_id}'",
        at,
    )
    as_owner(
        tenant,
        "UPDATE billing_stripe_export SET hour = %s, state = 'delivered', closed_at = now()"
        " WHERE state = 'pending'",
        at,
    )


def left(tenant: Tenant) -> set[str]:
    """The prunable tables that have a row of the tenant's."""
    return {
        prunable.table
        for prunable in PRUNABLE
        if rows(
            f"SELECT FROM {prunable.table} WHERE {OWNED.get(prunable.table, 'organization_id')}"
            " = %s LIMIT 1",
            str(tenant.organization_id),
        )
    }


def test_what_is_older_than_thirteen_months_goes_and_the_books_stay(acme: Tenant) -> None:
    aged(acme, OLD)
    before = (acme.balance(), replay().entries)

    prune_old()

    assert left(acme) == set()
    assert (acme.balance(), replay().entries) == before
    assert reconcile() == []
    assert replay().differences == ()


def test_what_is_younger_stays(acme: Tenant) -> None:
    aged(acme, YOUNG)

    prune(datetime.now(UTC))

    assert left(acme) == {prunable.table for prunable in PRUNABLE}
    as_owner(acme, "DELETE FROM billing_stripe_export")
    as_owner(acme, "DELETE FROM billing_quota_counter")


def test_what_somebody_must_look_at_stays_however_old(acme: Tenant) -> None:
    aged(acme, OLD)
    as_owner(acme, "UPDATE billing_stripe_event SET outcome = 'quarantined'")
    as_owner(acme, "ALTER TABLE billing_stripe_export DISABLE TRIGGER USER")
    try:
        as_owner(acme, "UPDATE billing_stripe_export SET state = 'refused'")
    finally:
        as_owner(acme, "ALTER TABLE billing_stripe_export ENABLE TRIGGER USER")

    prune(datetime.now(UTC))

    assert left(acme) == {"billing_stripe_event", "billing_stripe_export"}
    as_owner(acme, "DELETE FROM billing_stripe_export")


def test_a_message_that_comes_again_after_its_marker_went_changes_nothing(acme: Tenant) -> None:
    apply = (
        "SELECT billing_stripe_apply('evt_' || t.id, 'payment_intent.succeeded', now(),"
        " t.organization_id, a.customer_id, t.id, 'complete', 'pi_' || t.id, 'usd', %s, 0, '', '')"
        " FROM billing_top_up t JOIN billing_stripe_account a USING (organization_id)"
        " WHERE t.organization_id = %s"
    )
    assert rows(apply, PICO, acme.organization_id) == [("applied",)]
    paid = acme.balance()
    aged(acme, OLD)
    prune(datetime.now(UTC))

    assert rows(apply, PICO, acme.organization_id) == [("unchanged",)]
    assert acme.balance() == paid
    assert reconcile() == []


def test_a_quota_whose_counter_went_goes_on_counting(acme: Tenant) -> None:
    aged(acme, OLD)
    prune(datetime.now(UTC))

    settle([used(acme.held(), UsageCounts(50, 10, 40))])

    [(used_tokens, held_tokens)] = rows(
        "SELECT used_amount::int, held_amount::int FROM billing_quota_counter"
        " WHERE organization_id = %s",
        acme.organization_id,
    )
    assert (used_tokens, held_tokens) == (100, 0)
    # In truth no hold of a window as old as that is of today.
    as_owner(acme, "DELETE FROM billing_quota_counter")
