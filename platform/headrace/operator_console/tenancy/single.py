"""`/operator/tenants/<id>`: one tenant's standing, and what is the operator's to set of it."""

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse

import billing.facade
import tenants.facade
from billing.contracts import AccountMissing, Balance, CreditGrant
from headrace.console_kit import formats
from headrace.console_kit.forms import LIMIT_LABELS
from headrace.console_kit.tables import Column, Row, Table
from headrace.operator_console.pages import ZONE, OperatorView
from headrace.operator_console.tenancy.listing import status_badge
from tenants.contracts import OrganizationSettings

GRANTS_MAX = 20
GRANT_COLUMNS = (
    Column("Granted"),
    Column("Reference"),
    Column("Kind"),
    Column("Amount", is_number=True),
    Column("Left", is_number=True),
    Column("Ends", hides=True),
)


class TenantPage(OperatorView):
    """Raises OrganizationNotFound, 404, for none of this id."""

    page = "tenants"
    title = "Tenant"
    template = "operator_console/tenants/tenant.html"

    def get(self, request: HttpRequest, organization_id: UUID) -> HttpResponse:
        """Its standing."""
        return self.show(**self._standing(organization_id))

    def _standing(self, organization_id: UUID) -> dict[str, Any]:
        tenant = tenants.facade.read_organization(self.actor_in(organization_id))
        balance = balance_of(organization_id)
        return {
            "tenant": tenant,
            "standing": status_badge(tenant.status),
            "balance": balance,
            "may_owe_pico": None if balance is None else -balance.floor_pico,
            "overview": billing.facade.usage_overview(organization_id, self.now, tenant.time_zone),
            "limits": limits_shown(tenant),
            "grants": grants_table(organization_id, balance),
            "is_demo": billing.facade.is_demo(organization_id),
        }


def balance_of(organization_id: UUID) -> Balance | None:
    """None where no account was opened."""
    try:
        return billing.facade.balance(organization_id)
    except AccountMissing:
        return None


def limits_shown(tenant: OrganizationSettings) -> list[tuple[str, int | None]]:
    """Each minute limit by its name."""
    return [(label, getattr(tenant.limits, name)) for name, label in LIMIT_LABELS.items()]


def grants_table(organization_id: UUID, balance: Balance | None) -> Table:
    """The latest grants, as the tenant's own page has them."""
    grants: list[CreditGrant] = []
    if balance is not None:
        grants = billing.facade.credit_grants(organization_id, rows_max=GRANTS_MAX)
    rows = [
        Row(
            [
                formats.moment(one.created_at, ZONE),
                one.source,
                one.category.value,
                formats.money(one.amount_pico, balance.currency if balance else ""),
                formats.money(one.remaining_pico, balance.currency if balance else ""),
                "never" if one.expires_at is None else formats.day_text(one.expires_at, ZONE),
            ],
            is_muted=not one.remaining_pico,
        )
        for one in grants
    ]
    return Table("Credit grants", GRANT_COLUMNS, rows, empty="No credit was granted or bought.")
