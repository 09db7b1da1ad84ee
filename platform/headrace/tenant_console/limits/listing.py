"""`/console/<slug>/limits`: every limit that applies, and how full it is now.

The meters are live. Called by the console's routes.
"""

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

import billing.facade
import tenants.facade
from billing.contracts import Balance, Quota
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.console_kit.templatetags.kit import badge
from headrace.tenant_console.billing.named import Alert, available_pico, money_alerts
from headrace.tenant_console.limits.meters import Meter, MinuteLimit, minute_limits, quota_meter
from headrace.tenant_console.limits.named import LimitsView, quota_alerts
from headrace.tenant_console.limits.wording import what, whose
from tenants.contracts import NO_LIMITS, MinuteLimited, Permission

METER = "tenant_console/limits/meter.html"
NOTED = '{}<span class="cell-note">{}</span>'


class LimitsPage(LimitsView):
    """Money, quotas, minute limits."""

    title = "Limits"
    template = "tenant_console/limits/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """All of them."""
        limited = tenants.facade.minute_limited(self.actor)
        account = self._account()
        return self.show(
            account=account,
            available_pico=None if account is None else available_pico(account),
            owed_pico=None if account is None else max(-account.posted_pico, 0),
            credit_limit_pico=None if account is None else max(-account.floor_pico, 0),
            billing_href=self.link("billing"),
            alerts=[*self._money_alerts(account), *quota_alerts(self, self.quotas, self.names)],
            is_empty=not self.quotas,
            quota_table=self._quota_table(),
            minute_table=self._minute_table(limited),
        )

    def _account(self) -> Balance | None:
        if not self.may(Permission.BILLING_READ):
            return None
        return billing.facade.balance(self.organization_id)

    def _money_alerts(self, account: Balance | None) -> list[Alert]:
        if account is None:
            return []
        return money_alerts(
            account,
            billing.facade.billing_settings(self.organization_id),
            billing.facade.recharge_settings(self.organization_id),
        )

    def _quota_table(self) -> Table:
        columns = [
            Column("Limit"),
            Column("Now"),
            Column("When reached", hides=True),
            Column("Resets", hides=True),
            Column("Set by", hides=True),
        ]
        return Table("Quotas", columns, [self._quota_row(one) for one in self.quotas])

    def _quota_row(self, one: Quota) -> Row:
        return Row(
            [
                format_html(NOTED, whose(one.wanted, self.names), what(one.wanted)),
                drawn(quota_meter(one, self.currency)),
                badge("refuses", "blue") if one.wanted.is_hard else badge("tells", "gray"),
                formats.age(one.resets_at, self.zone, self.now),
                format_html(NOTED, self.setter(one), formats.age(one.set_at, self.zone, self.now)),
            ],
            self.url("limit", one.quota_id),
        )

    def _minute_table(self, limited: list[MinuteLimited]) -> Table:
        columns = [Column("Whose"), Column("Now"), Column("Set by", hides=True)]
        by_key = [one for one in limited if one.scope == "key"]
        keys = {}
        if by_key and self.may(Permission.KEYS_READ):
            keys = tenants.facade.key_names(self.actor, [one.scope_id for one in by_key])
        rows = []
        for limit in minute_limits(self.organization_id, limited):
            name = keys.get(limit.of.scope_id, "")
            cells = [self._owner(limit, name), drawn(limit.meter), self._minute_setter(limit.of)]
            rows.append(Row(cells, self._minute_href(limit.of)))
        for one in by_key:
            if one.end_user_limits != NO_LIMITS:
                text = f"Each end user of key {keys.get(one.scope_id, '')}"
                rows.append(Row([text, "see the key", "with the key"], self._minute_href(one)))
        return Table("Minute limits", columns, rows)

    def _owner(self, limit: MinuteLimit, key_name: str) -> str:
        match limit.of.scope:
            case "organization":
                return "Organization"
            case "project":
                return f"Project {self.names.projects.get(limit.of.scope_id, '')}"
        return f"Key {key_name}"

    def _minute_setter(self, one: MinuteLimited) -> str:
        return "the operator" if one.scope == "organization" else f"with the {one.scope}"

    def _minute_href(self, one: MinuteLimited) -> str:
        may_open = one.scope == "key" and self.may(Permission.KEYS_READ)
        return self.url("key", one.scope_id) if may_open else ""


def drawn(meter: Meter) -> SafeString:
    """A meter for a cell."""
    return SafeString(render_to_string(METER, {"one": meter}))
