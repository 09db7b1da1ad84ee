"""The numbers at the top of the overview, which change while somebody looks.

Pure. Called by the page, and by the topic `usage` of its live parts.
"""

from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

from billing.contracts import Quota, QuotaMetric, QuotaPeriod, QuotaScope, UsageOverview
from headrace.console_kit import formats


def tiles(overview: UsageOverview, quotas: Sequence[Quota], zone: ZoneInfo) -> dict[str, Any]:
    """What `overview/tiles.html` shows."""
    last_month = overview.last_month
    return {
        "overview": overview,
        "last_month_text": formats.span_text(last_month.start_at, last_month.end_at, zone),
        "budget": _whole(quotas, QuotaMetric.SPEND, QuotaPeriod.MONTH),
        "day_quota": _whole(quotas, QuotaMetric.TOKENS, QuotaPeriod.DAY),
    }


def _whole(quotas: Sequence[Quota], metric: QuotaMetric, period: QuotaPeriod) -> Quota | None:
    """The organization's own hard quota of this kind."""
    for quota in quotas:
        wanted = quota.wanted
        if (wanted.scope, wanted.metric, wanted.period, wanted.is_hard) == (
            *(QuotaScope.ORGANIZATION, metric, period),
            True,
        ):
            return quota
    return None
