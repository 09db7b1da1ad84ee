"""What a limit would have done over the last weeks: a sentence and a chart. Pure.

Called by the pages on which limits are set.
"""

from dataclasses import dataclass
from zoneinfo import ZoneInfo

from django.utils.safestring import SafeString

from billing.contracts import QuotaMetric, QuotaPeriod, QuotaPreview
from headrace.console_kit.charts import Chart, Color, Series, Unit
from headrace.tenant_console.limits.wording import amount, what

UNITS = {QuotaMetric.REQUESTS: Unit.REQUESTS, QuotaMetric.SPEND: Unit.MONEY}


@dataclass(frozen=True, slots=True)
class Preview:
    """What is said and drawn of a quota's preview."""

    days: int
    days_reached: int
    most: SafeString
    limit: SafeString
    period: str
    is_hard: bool
    chart: Chart


def preview_of(found: QuotaPreview, currency: str, zone: ZoneInfo) -> Preview:
    """Bars of what was used, in another colour where the limit would have been reached."""
    wanted = found.wanted
    is_day = wanted.period is QuotaPeriod.DAY
    starts = [one.start_at.astimezone(zone) for one in found.periods]
    labels = [f"{at.day} {at:%b}" if is_day else f"{at:%b %Y}" for at in starts]
    within = [0 if one.reached_on else one.used_amount for one in found.periods]
    reached = [one.used_amount if one.reached_on else 0 for one in found.periods]
    metric = wanted.metric
    return Preview(
        days=found.days,
        days_reached=found.days_reached,
        most=amount(metric, max((one.used_amount for one in found.periods), default=0), currency),
        limit=amount(metric, wanted.limit_amount, currency),
        period=wanted.period.value,
        is_hard=wanted.is_hard,
        chart=Chart(
            "preview",
            what(wanted),
            UNITS.get(metric, Unit.TOKENS),
            labels,
            [
                Series("Below the limit", Color.FIRST, within),
                Series("Limit reached", Color.SIXTH, reached),
            ],
            currency=currency,
        ),
    )
