"""`/operator/tenants`: every tenant with its balance, its month's spend and its limits."""

from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

import billing.facade
import tenants.facade
from billing.contracts import TenantAccount
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.console_kit.templatetags.kit import badge
from headrace.operator_console.pages import ZONE, OperatorView
from tenants.contracts import OrganizationStatus, TenantSummary

PAGE_ROWS = 50
SEARCH_CHARS_MAX = 120
TONES = {
    OrganizationStatus.ACTIVE: "green",
    OrganizationStatus.SUSPENDED: "yellow",
    OrganizationStatus.CLOSED: "gray",
}
COLUMNS = (
    Column("Tenant"),
    Column("Status", hides=True),
    Column("Balance", is_number=True),
    Column("This month", is_number=True),
    Column("May owe", is_number=True, hides=True),
    Column("Requests / min", is_number=True, hides=True),
    Column("Tokens / min", is_number=True, hides=True),
    Column("Members", is_number=True, hides=True),
    Column("Since", hides=True),
)


class TenantsPage(OperatorView):
    """A page of them by slug; `?q=` finds by slug and name."""

    page = "tenants"
    title = "Tenants"
    template = "operator_console/tenants/page.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        """The list."""
        wanted = request.GET.get("q", "").strip()[:SEARCH_CHARS_MAX]
        found = tenants.facade.all_tenants(self.user_id, wanted, request.GET.get("after", ""))
        shown, more = found[:PAGE_ROWS], found[PAGE_ROWS:]
        accounts = billing.facade.tenant_accounts(
            self.user_id, {one.organization_id: one.time_zone for one in shown}, self.now
        )
        table = Table(
            "Tenants",
            COLUMNS,
            [self._row(one, accounts.get(one.organization_id)) for one in shown],
            empty="No tenant has this in its slug or name." if wanted else "No tenants yet.",
            next_href=self.url("tenants", q=wanted, after=shown[-1].slug) if more else "",
        )
        return self.show(table=table, wanted=wanted)

    def _row(self, tenant: TenantSummary, account: TenantAccount | None) -> Row:
        return Row(
            [
                format_html("{} <span class='text-secondary'>{}</span>", *_named(tenant)),
                status_badge(tenant.status),
                *_amounts(account),
                formats.count(tenant.limits.requests_max),
                formats.count(tenant.limits.tokens_max),
                formats.count(tenant.members),
                formats.day_text(tenant.created_at, ZONE),
            ],
            href=self.url("tenant", tenant.organization_id),
            is_muted=tenant.status is OrganizationStatus.CLOSED,
        )


def status_badge(status: OrganizationStatus) -> SafeString:
    """The word and its colour."""
    return badge(status.value, TONES[status])


def _named(tenant: TenantSummary) -> tuple[str, str]:
    return tenant.display_name, tenant.slug


def _amounts(account: TenantAccount | None) -> list[object]:
    if account is None:
        return [formats.UNKNOWN] * 3
    amounts = (account.posted_pico, account.charged_pico, -account.floor_pico)
    return [formats.money(amount, account.currency) for amount in amounts]
