"""What the pages of money share: their sections, and what they say when money runs out.

Called by the pages beside this, and by the page of limits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from billing.contracts import Balance, BillingSettings, RechargeSettings, TopUpUnavailable
from headrace.console_kit import formats
from headrace.console_kit.pages import PageView
from tenants.contracts import Permission

ROWS = 25
SECTIONS = (
    ("billing", "Balance", Permission.BILLING_READ),
    ("billing-invoices", "Invoices", Permission.BILLING_READ),
    ("billing-credits", "Credit", Permission.BILLING_READ),
    ("billing-prices", "Prices", Permission.CATALOG_READ),
    ("billing-settings", "Settings", Permission.BILLING_READ),
)


@dataclass(frozen=True, slots=True)
class Alert:
    """Something about money or limits that somebody should act on; `is_urgent`: requests are
    refused. Where not (only) a top-up helps, `href` leads to what does, which `label` names."""

    text: str
    is_urgent: bool = False
    is_of_money: bool = True
    href: str = ""
    label: str = ""


class BillingView(PageView):
    """A page under `billing`."""

    page = "billing"
    needs = Permission.BILLING_READ
    section: str = "billing"

    @property
    def sections(self) -> list[tuple[str, str, bool]]:
        """Where the sections are, what they are called, and whether this is one."""
        return [
            (self.url(route), title, route == self.section)
            for route, title, needs in SECTIONS
            if self.may(needs)
        ]

    @property
    def top_up_href(self) -> str:
        """Where to pay in; '' for who may not."""
        return self.url("billing-top-up") if self.may(Permission.BILLING_WRITE) else ""

    def next_href(self, rows: Sequence[object], last_id: UUID | None) -> str:
        """Where older rows are, if more were read than are shown."""
        return self.url(self.section, after=last_id) if len(rows) > ROWS else ""


def available_pico(account: Balance) -> int:
    """What requests may still reserve, as the API says it."""
    return max(account.posted_pico - account.held_pico - account.floor_pico, 0)


def not_paid(error: TopUpUnavailable) -> str:
    """Why nobody can pay in now, as a sentence."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}. Nothing was paid. Try again later, or ask your operator."


def money_alerts(
    account: Balance, warned: BillingSettings, recharge: RechargeSettings
) -> list[Alert]:
    """The worst first."""
    found = []
    if not available_pico(account):
        text = "The balance is used up: requests are refused until money comes in."
        found.append(Alert(text, is_urgent=True))
    elif warned.low_balance_pico is not None and account.posted_pico < warned.low_balance_pico:
        low = formats.money_text(warned.low_balance_pico, account.currency)
        found.append(Alert(f"The balance is below {low}, the level to warn at."))
    if recharge.is_enabled and recharge.failures:
        found.append(Alert("The last automatic top-up failed: no credit came in."))
    return found
