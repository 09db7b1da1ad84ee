"""`/console/<slug>/`: at a glance, what is spent and used, how fast, and what needs attention.

Reads sums only, never single events. Called by the console's routes.
"""

from collections.abc import Callable, Sequence

from django.conf import settings
from django.http import HttpRequest, HttpResponse

import billing.facade
from billing.contracts import Balance, UsageSum
from headrace.console_kit import formats
from headrace.console_kit.charts import Chart, Color, Series, Unit
from headrace.console_kit.pages import PageView
from headrace.tenant_console.overview.attention import notices
from headrace.tenant_console.overview.tiles import tiles
from tenants.contracts import Permission

PACE_DAYS = 7


class OverviewPage(PageView):
    """The first page of an organization."""

    page = "overview"
    title = "Overview"
    needs = Permission.USAGE_READ
    template = "tenant_console/overview/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """Numbers of the month and of today; what to do first where there are none."""
        overview = billing.facade.usage_overview(
            self.organization_id, self.now, self.organization.time_zone
        )
        quotas = billing.facade.quotas(self.actor)
        balance = self._balance()
        days = overview.days[-1 - PACE_DAYS : -1]
        pace_pico = sum(day.charge_pico for day in days) // PACE_DAYS
        return self.show(
            **tiles(overview, quotas, self.zone),
            month_text=formats.span_text(overview.month.start_at, self.now, self.zone),
            balance=balance,
            notices=[
                (notice, self.link(notice.route))
                for notice in notices(balance, quotas, overview.recent, pace_pico, self.now)
            ],
            spend_chart=self._chart("spend", "Spend by day", Unit.MONEY, overview.days, SPEND),
            tokens_chart=self._chart("tokens", "Tokens by day", Unit.TOKENS, overview.days, TOKENS),
            is_new=not any(day.requests for day in overview.days) and not overview.month.requests,
            keys_href=self.link("keys"),
            base_url=f"{settings.PUBLIC_URL}/v1",
            models=billing.facade.models_for_sale(self.organization_id),
        )

    def _balance(self) -> Balance | None:
        if not self.may(Permission.BILLING_READ):
            return None
        return billing.facade.balance(self.organization_id)

    def _chart(
        self, name: str, title: str, unit: Unit, days: Sequence[UsageSum], classes: "Classes"
    ) -> Chart:
        local = [day.start_at.astimezone(self.zone) for day in days]
        return Chart(
            name,
            title,
            unit,
            [f"{at.day} {at:%b}" for at in local],
            [Series(text, color, [value(day) for day in days]) for text, color, value in classes],
            currency=self.currency,
        )


Classes = Sequence[tuple[str, Color, Callable[[UsageSum], int]]]
SPEND: Classes = [("Spend", Color.UNCACHED, lambda day: day.charge_pico)]
TOKENS: Classes = [
    ("Uncached input", Color.UNCACHED, lambda day: day.uncached_input_tokens),
    ("Cached input", Color.CACHED, lambda day: day.cached_input_tokens),
    ("Output", Color.OUTPUT, lambda day: day.output_tokens),
]
