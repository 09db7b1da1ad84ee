"""`/console/<slug>/billing`: what there is to spend, and how it came in.

People come back here from the page on which they paid: then it looks again until the payment has
arrived. Called by the console's routes.
"""

from datetime import timedelta

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

import billing.facade
from billing.contracts import Quota, QuotaMetric, TopUp, TopUpState, TopUpUnavailable
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.console_kit.templatetags.kit import badge
from headrace.tenant_console.billing.named import (
    ROWS,
    BillingView,
    available_pico,
    money_alerts,
    not_paid,
)
from headrace.tenant_console.limits.meters import Meter, fullest, subject_meter
from headrace.tenant_console.limits.named import names_for, quota_alerts
from headrace.tenant_console.limits.wording import Names, what, whose
from tenants.contracts import Permission

LOOKS_MAX = 20
"""At a payment that somebody just made, one every two seconds."""
JUST_MADE = timedelta(hours=1)
PAYABLE = timedelta(hours=24)
"""For so long the provider's page is open."""
WAITING_MAX = 3
"""Of the newest top-ups; whoever begins more begins them again."""
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
    writes = Permission.BILLING_WRITE
    is_sensitive = True
    template = "tenant_console/billing/balance.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """`?after=` for older top-ups; `?top_up=done` or `cancelled` for who comes back."""
        warned = billing.facade.billing_settings(self.organization_id)
        recharge = billing.facade.recharge_settings(self.organization_id)
        budgets = self._budgets()
        names = names_for(self, budgets)
        after = self.asked_id("after")
        found = billing.facade.top_ups(self.organization_id, rows_max=ROWS + 1, after=after)
        # After the top-ups: the money of one that has arrived is in it.
        account = billing.facade.balance(self.organization_id)
        shown = found[:ROWS]
        returned = self._returned(shown) if after is None else None
        return self.show(
            account=account,
            available_pico=available_pico(account),
            credit_limit_pico=max(-account.floor_pico, 0),
            warned=warned,
            recharge=recharge,
            alerts=[
                *money_alerts(account, warned, recharge),
                *quota_alerts(self, budgets, names),
            ],
            budgets=[self._budget(one, names) for one in budgets],
            returned=returned,
            waiting=self._waiting(shown, returned) if after is None else [],
            look_again_href=self._look_again(returned),
            is_cancelled=request.GET.get("top_up") == "cancelled",
            settings_href=self.url("billing-settings"),
            limits_href=self.link("limits"),
            table=Table(
                "Top-ups",
                [
                    Column("Started"),
                    Column("Amount", is_number=True),
                    Column("How", hides=True),
                    Column("Paid", hides=True),
                    Column("State"),
                ],
                [self._row(one) for one in shown],
                empty="Nothing was paid in yet.",
                next_href=self.next_href(found, shown[-1].top_up_id if shown else None),
            ),
        )

    def do_continue(self, slug: str) -> HttpResponse:
        """To where the top-up is paid; raises TopUpNotFound."""
        back = f"{settings.PUBLIC_URL}{self.url('billing')}"
        try:
            started = billing.facade.continue_topup(self.actor, self.posted_id("top_up"), back)
        except TopUpUnavailable as away:
            return self.refused(not_paid(away))
        if not started.payment_url:
            return self.refused("This top-up was paid, or its page has closed. Look at its state.")
        return self.go(started.payment_url)

    def _budgets(self) -> list[Quota]:
        """Limits of spend, for who may see limits."""
        if not self.may(Permission.LIMITS_READ):
            return []
        quotas = billing.facade.quotas(self.actor)
        return [one for one in quotas if one.wanted.metric is QuotaMetric.SPEND]

    def _budget(self, one: Quota, names: Names) -> tuple[str, Meter]:
        """Where it is set, and how full it is."""
        label = f"{whose(one.wanted, names)}, {what(one.wanted).lower()}"
        element_id = f"budget-{one.quota_id.hex}"
        meter = subject_meter(one, fullest(one), self.currency, element_id, label)
        return self.url("limit", one.quota_id), meter

    def _returned(self, shown: list[TopUp]) -> TopUp | None:
        """The top-up that somebody comes back from."""
        if self.request.GET.get("top_up") != "done":
            return None
        for one in shown:
            if not one.is_recharge:
                return one if self.now - one.created_at < JUST_MADE else None
        return None

    def _waiting(self, shown: list[TopUp], returned: TopUp | None) -> list[TopUp]:
        """Top-ups that somebody began and can still pay."""
        waiting = [
            one
            for one in shown
            if one.state is TopUpState.PENDING
            and not one.is_recharge
            and one != returned
            and self.now - one.created_at < PAYABLE
        ]
        return waiting[:WAITING_MAX]

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
                self._amount(one),
                "automatic" if one.is_recharge else "by hand",
                formats.moment(one.completed_at, self.zone),
                format_html(NOTED, state, one.failure.replace("_", " ")) if one.failure else state,
            ]
        )

    def _amount(self, one: TopUp) -> SafeString:
        amount = formats.money(one.amount_pico, one.currency)
        if not one.refunded_pico:
            return amount
        refunded = formats.money(one.refunded_pico, one.currency)
        return format_html(NOTED, amount, format_html("{} refunded", refunded))

    @property
    def may_write(self) -> bool:
        """Whether the viewer may pay in and change settings."""
        return self.may(Permission.BILLING_WRITE)
