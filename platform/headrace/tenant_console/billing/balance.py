"""`/console/<slug>/billing`: what there is to spend, and how it came in.

People come back here from the page on which they paid: then it looks again until the payment has
arrived. Called by the console's routes.
"""

from datetime import timedelta

from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html

import billing.facade
from billing.contracts import QuotaMetric, TopUp, TopUpState
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.console_kit.templatetags.kit import badge
from headrace.tenant_console.billing.named import (
    ROWS,
    Alert,
    BillingView,
    available_pico,
    money_alerts,
)
from headrace.tenant_console.limits.named import names_for, quota_alerts
from tenants.contracts import Permission

LOOKS_MAX = 20
"""At a payment that somebody just made, one every two seconds."""
JUST_MADE = timedelta(hours=1)
NOTED = '{}<span class="cell-note">{}</span>'
TONES = {
    TopUpState.PENDING: "yellow",
    TopUpState.SUCCEEDED: "green",
    TopUpState.FAILED: "red",
    TopUpState.REFUNDED: "gray",
}


class BalancePage(BillingView):
    """The account now."""

    title = "Billing"
    template = "tenant_console/billing/balance.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """`?after=` for older top-ups; `?top_up=done` or `cancelled` for who comes back."""
        account = billing.facade.balance(self.organization_id)
        warned = billing.facade.billing_settings(self.organization_id)
        recharge = billing.facade.recharge_settings(self.organization_id)
        after = self.asked_id("after")
        found = billing.facade.top_ups(self.organization_id, rows_max=ROWS + 1, after=after)
        shown = found[:ROWS]
        returned = self._returned(shown) if after is None else None
        return self.show(
            account=account,
            available_pico=available_pico(account),
            credit_limit_pico=max(-account.floor_pico, 0),
            warned=warned,
            recharge=recharge,
            alerts=[*money_alerts(account, warned, recharge), *self._budget_alerts()],
            returned=returned,
            look_again_href=self._look_again(returned),
            is_cancelled=request.GET.get("top_up") == "cancelled",
            settings_href=self.url("billing-settings"),
            limits_href=self.link("limits"),
            table=Table(
                "Top-ups",
                [
                    Column("Started"),
                    Column("Amount", is_number=True),
                    Column("Refunded", is_number=True, hides=True),
                    Column("How", hides=True),
                    Column("Paid", hides=True),
                    Column("State"),
                ],
                [self._row(one) for one in shown],
                empty="Nothing was paid in yet.",
                next_href=self.next_href(found, shown[-1].top_up_id if shown else None),
            ),
        )

    def _budget_alerts(self) -> list[Alert]:
        if not self.may(Permission.LIMITS_READ):
            return []
        quotas = billing.facade.quotas(self.actor)
        return quota_alerts(self, quotas, names_for(self, quotas), [QuotaMetric.SPEND])

    def _returned(self, shown: list[TopUp]) -> TopUp | None:
        """The top-up that somebody comes back from."""
        if self.request.GET.get("top_up") != "done":
            return None
        for one in shown:
            if not one.is_recharge:
                return one if self.now - one.created_at < JUST_MADE else None
        return None

    def _look_again(self, returned: TopUp | None) -> str:
        if returned is None or returned.state is not TopUpState.PENDING:
            return ""
        text = self.request.GET.get("looks", "0")
        looks = int(text) if text.isascii() and text.isdecimal() and len(text) < len("100") else 0
        return self.url("billing", top_up="done", looks=looks + 1) if looks < LOOKS_MAX else ""

    def _row(self, one: TopUp) -> Row:
        state = badge(one.state.value, TONES[one.state])
        return Row(
            [
                formats.moment(one.created_at, self.zone),
                formats.money(one.amount_pico, one.currency),
                formats.money(one.refunded_pico, one.currency) if one.refunded_pico else "",
                "automatic" if one.is_recharge else "by hand",
                formats.moment(one.completed_at, self.zone),
                format_html(NOTED, state, one.failure.replace("_", " ")) if one.failure else state,
            ]
        )

    @property
    def may_write(self) -> bool:
        """Whether the viewer may pay in and change settings."""
        return self.may(Permission.BILLING_WRITE)
