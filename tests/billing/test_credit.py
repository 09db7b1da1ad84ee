"""Credit grants: the order they burn in, their beginning and end, and that money comes in once."""

from datetime import UTC, datetime, timedelta

from billing.contracts import PICO, GrantCategory, UsageCounts
from billing.facade import credit_grants, grant_credit, reconcile, settle, tend_credit_of
from tests.billing.cast import Tenant, make_tenant, used

NOW = datetime.now(UTC)


def spend(tenant: Tenant, amount_pico: int) -> None:
    """Use tokens that cost this much."""
    [settled] = settle([used(tenant.held(amount_pico, 0), UsageCounts(amount_pico, 0, 0))])
    assert settled.charge_pico == amount_pico


def left(tenant: Tenant) -> dict[str, int]:
    """What remains of each grant, by the name it was given."""
    return {
        grant.source.removeprefix("grant:"): grant.remaining_pico
        for grant in credit_grants(tenant.organization_id)
    }


def test_usage_burns_promotional_credit_first(django_database: object) -> None:
    tenant = make_tenant(credit_pico=0)
    grant_credit(tenant.organization_id, 100, "paid", category=GrantCategory.PAID)
    grant_credit(tenant.organization_id, 100, "gift")

    spend(tenant, 130)

    assert left(tenant) == {"paid": 70, "gift": 0}
    assert tenant.balance().posted_pico == 70
    assert reconcile() == []
