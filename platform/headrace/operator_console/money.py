"""`/operator/money`: whether the books agree, what Stripe was told, what models and tenants bring.

Margins are estimates, of the time since when engines' time is written down.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse

import billing.facade
import tenants.facade
from billing.contracts import TenantUsage
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.operator_console.hour_prices import hour_prices
from headrace.operator_console.margins import Margin, margins, model_costs_pico
from headrace.operator_console.pages import ZONE, OperatorView
from headrace.operator_console.reports.engine_time import engine_seconds
from headrace.operator_console.reports.keeping import ReportName, last

MTOK = 10**6
TENANTS_MAX = 50
"""Those with the highest charges are shown."""
NUMBERS = (
    Column("Requests", is_number=True, hides=True),
    Column("Tokens", is_number=True, hides=True),
    Column("Charged", is_number=True),
    Column("Per Mtok", is_number=True),
    Column("Share", is_number=True, hides=True),
)


class MoneyPage(OperatorView):
    """`?month=last` for the month before."""

    page = "money"
    title = "Money"
    template = "operator_console/money/page.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        """This month so far, by UTC."""
        is_last = request.GET.get("month") == "last"
        start_at, end_at = month_at(self.now, is_last=is_last)
        usage = billing.facade.usage_of_all(self.user_id, start_at, end_at)
        names = tenants.facade.tenant_slugs(self.user_id, {one.organization_id for one in usage})
        margin_tables, margin_span = self._margins(usage, (start_at, end_at), names)
        return self.show(
            prices=hour_prices(),
            margin_tables=margin_tables,
            margin_span=margin_span,
            is_last=is_last,
            span=formats.span_text(start_at, min(end_at, self.now), ZONE),
            books=last(self.user_id, ReportName.BOOKS),
            house=last(self.user_id, ReportName.HOUSE),
            has_stripe=bool(settings.STRIPE_API_KEY),
            models=by(usage, "Model", lambda one: f"{one.model}, {one.tier.value}"),
            tenants=by(
                usage, "Tenant", lambda one: names.get(one.organization_id, "-"), TENANTS_MAX
            ),
        )

    def _margins(
        self,
        usage: Sequence[TenantUsage],
        span: tuple[datetime, datetime],
        names: Mapping[UUID, str],
    ) -> tuple[list[Table], str]:
        """By model and by tenant, and of when; none without a price and until time is known."""
        currency = settings.GPU_HOUR_CURRENCY
        report = last(self.user_id, ReportName.ENGINE_TIME)
        if report is None:
            return [], ""
        start_at = max(span[0], datetime.fromisoformat(report.content["since"]))
        costs_pico = model_costs_pico(engine_seconds(report.content, span[0]), hour_prices().of)
        if start_at >= span[1] or not costs_pico:
            return [], ""
        if start_at > span[0]:
            usage = billing.facade.usage_of_all(self.user_id, start_at, span[1])
        sold = [one for one in usage if one.currency == currency]
        tables = [
            margin_table(title, margins(sold, costs_pico, name), currency)
            for title, name in (
                ("Model", lambda one: one.model),
                ("Tenant", lambda one: names.get(one.organization_id, formats.UNKNOWN)),
            )
        ]
        since = formats.moment_text(start_at, ZONE)
        return tables, f"{since} to {formats.moment_text(min(span[1], self.now), ZONE)}, UTC"


def margin_table(title: str, found: Sequence[Margin], currency: str) -> Table:
    """Charges, cost and what is between, with the share of the charge that is left."""
    columns = (
        Column(title),
        *(Column(name, is_number=True) for name in ("Charged", "Cost", "Margin")),
        Column("Of the charge", is_number=True, hides=True),
    )
    rows = [
        Row(
            [
                one.name,
                *(
                    formats.money(amount, currency)
                    for amount in (one.charge_pico, one.cost_pico, one.margin_pico)
                ),
                formats.percent_text(one.margin_pico, one.charge_pico),
            ]
        )
        for one in found[:TENANTS_MAX]
    ]
    return Table(f"Margin by {title.lower()}", columns, rows, empty="Nothing was used.")


def month_at(now: datetime, *, is_last: bool) -> tuple[datetime, datetime]:
    """This month so far, with the hour that runs, or the month before; by UTC."""
    start_at = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    if not is_last:
        return start_at, now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    return (start_at - timedelta(days=1)).replace(day=1), start_at


def by(
    usage: Sequence[TenantUsage],
    title: str,
    name: Callable[[TenantUsage], str],
    rows_max: int | None = None,
) -> Table:
    """What was charged, summed by what `name` says and by currency, the most first."""
    sums: dict[tuple[str, str], list[int]] = {}
    totals: dict[str, int] = {}
    for one in usage:
        row = sums.setdefault((name(one), one.currency), [0, 0, 0])
        for index, amount in enumerate((one.requests, one.tokens, one.charge_pico)):
            row[index] += amount
        totals[one.currency] = totals.get(one.currency, 0) + one.charge_pico
    ordered = sorted(sums.items(), key=lambda item: (-item[1][2], item[0]))[:rows_max]
    rows = [
        Row(
            [
                named,
                formats.count(requests),
                formats.count(tokens),
                formats.money(charge_pico, currency),
                formats.money(charge_pico * MTOK // tokens if tokens else None, currency),
                formats.percent_text(charge_pico, totals[currency]),
            ]
        )
        for (named, currency), (requests, tokens, charge_pico) in ordered
    ]
    columns = (Column(title), *NUMBERS)
    return Table(f"Charges by {title.lower()}", columns, rows, empty="Nothing was used.")
