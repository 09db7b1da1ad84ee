"""What needs attention: the few things that somebody should look at now, the worst first.

Pure: it is told what stands where, and says what is wrong with it. Called by the overview.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

from billing.contracts import Balance, Quota, QuotaMetric, QuotaScope, UsageSum
from headrace.console_kit import formats

NEARLY = 80
REACHED = 100
"""Percent of a quota."""
ERRORS_PERCENT_MAX = 5
ERRORS_OF_REQUESTS_MIN = 20
"""Of fewer requests, an error is no share."""
BALANCE_DAYS_MIN = 3
"""A balance that lasts less long at the pace of the month is soon used up."""
METRICS = {
    QuotaMetric.REQUESTS: "requests",
    QuotaMetric.TOKENS: "tokens",
    QuotaMetric.INPUT_TOKENS: "input tokens",
    QuotaMetric.OUTPUT_TOKENS: "output tokens",
    QuotaMetric.SPEND: "spend",
}
SCOPES = {
    QuotaScope.ORGANIZATION: "the organization",
    QuotaScope.PROJECT: "a project",
    QuotaScope.KEY: "a key",
    QuotaScope.END_USER: "an end user",
}


class Urgency(IntEnum):
    """How bad it is: requests are refused, or soon will be, or it is worth a look."""

    REFUSING = 0
    SOON = 1
    LOOK = 2


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that needs attention; `route` is the page where something can be done."""

    urgency: Urgency
    text: str
    route: str

    @property
    def tone(self) -> str:
        """The colour of its word."""
        return {Urgency.REFUSING: "red", Urgency.SOON: "yellow", Urgency.LOOK: "blue"}[self.urgency]

    @property
    def word(self) -> str:
        """What the colour says."""
        return {Urgency.REFUSING: "now", Urgency.SOON: "soon", Urgency.LOOK: "look"}[self.urgency]


def notices(
    balance: Balance | None,
    quotas: Sequence[Quota],
    recent: UsageSum,
    pace_pico: int,
    now: datetime,
) -> list[Notice]:
    """The worst first. `pace_pico` is what a day costs now; a balance of None is not told."""
    found = [] if balance is None else _of_balance(balance, pace_pico)
    for quota in quotas:
        found += _of_quota(quota, now)
    if (
        recent.requests >= ERRORS_OF_REQUESTS_MIN
        and 100 * recent.errors >= ERRORS_PERCENT_MAX * recent.requests
    ):
        share = formats.percent_text(recent.errors, recent.requests)
        text = f"{share} of the requests of the last 24 hours failed."
        found.append(Notice(Urgency.LOOK, text, "usage"))
    return sorted(found, key=lambda notice: notice.urgency)


def _of_balance(balance: Balance, pace_pico: int) -> list[Notice]:
    left_pico = balance.posted_pico - balance.held_pico - balance.floor_pico
    if left_pico <= 0:
        text = "The balance is used up: requests are refused."
        return [Notice(Urgency.REFUSING, text, "billing")]
    if pace_pico > 0 and left_pico < BALANCE_DAYS_MIN * pace_pico:
        left = formats.money_text(left_pico, balance.currency)
        text = f"{left} are left: at the pace of the last days that is less than three days."
        return [Notice(Urgency.SOON, text, "billing")]
    return []


def _of_quota(quota: Quota, now: datetime) -> list[Notice]:
    wanted = quota.wanted
    used = max((one.used_amount + one.held_amount for one in quota.subjects), default=0)
    share = REACHED if wanted.limit_amount == 0 else 100 * used // wanted.limit_amount
    if share < NEARLY or quota.resets_at <= now:
        return []
    what = f"The {wanted.period.value}'s {METRICS[wanted.metric]} of {SCOPES[wanted.scope]}"
    is_one = wanted.metric is QuotaMetric.SPEND
    verb, has = ("is", "has") if is_one else ("are", "have")
    if share >= REACHED:
        if wanted.is_hard:
            text = f"{what} {verb} used up: requests are refused."
            return [Notice(Urgency.REFUSING, text, "limits")]
        return [Notice(Urgency.LOOK, f"{what} {has} passed what was to be told.", "limits")]
    return [Notice(Urgency.SOON, f"{what} {verb} used to {share} %.", "limits")]
