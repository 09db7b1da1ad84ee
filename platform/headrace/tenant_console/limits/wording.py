"""How limits read: whose they are, what they count, and amounts of it. Pure.

Called by the pages beside this, by their live parts, and by the pages of money.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.utils.safestring import SafeString

from billing.contracts import QuotaMetric, QuotaPeriod, QuotaScope, QuotaWanted
from headrace.console_kit import formats

METRICS = {
    QuotaMetric.REQUESTS: "Requests",
    QuotaMetric.TOKENS: "Tokens",
    QuotaMetric.INPUT_TOKENS: "Input tokens",
    QuotaMetric.OUTPUT_TOKENS: "Output tokens",
    QuotaMetric.SPEND: "Spend",
}
PERIODS = {QuotaPeriod.DAY: "a day", QuotaPeriod.MONTH: "a month"}
SETTERS = {"user": "a member", "api_key": "an admin key", "operator": "the operator"}
GONE = "removed"


@dataclass(frozen=True, slots=True)
class Names:
    """What projects and keys are called."""

    projects: Mapping[UUID, str]
    keys: Mapping[UUID, str]


def whose(wanted: QuotaWanted, names: Names) -> str:
    """`Project support`."""
    match wanted.scope:
        case QuotaScope.ORGANIZATION:
            return "Organization"
        case QuotaScope.PROJECT if wanted.scope_id is not None:
            return f"Project {names.projects.get(wanted.scope_id, GONE)}"
        case QuotaScope.KEY if wanted.scope_id is not None:
            return f"Key {names.keys.get(wanted.scope_id, GONE)}"
    return f"End user {wanted.end_user}" if wanted.end_user else "Each end user"


def what(wanted: QuotaWanted) -> str:
    """`Spend a month`."""
    return f"{METRICS[wanted.metric]} {PERIODS[wanted.period]}"


def amount(metric: QuotaMetric, value: int, currency: str) -> SafeString:
    """So much of what a limit counts, exact on hover."""
    if metric is QuotaMetric.SPEND:
        return formats.money(value, currency)
    return formats.count(value)
