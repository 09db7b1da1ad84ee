"""How long engines were up, by month and model: what a margin is estimated by.

A worker adds the time since its last look for each engine that reports; a gap longer than a few
looks is not counted, for nobody knows. Begins with the first whole hour after the first look.
Called by a worker every OPERATOR_REPORT_S.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings

from headrace.gateway.announcing import reports_now
from headrace.operator_console.models import ReportRow
from headrace.operator_console.reports.keeping import HOUSEKEEPER_ALIAS, ReportName, keep

GAP_REPORTS_MAX = 4
MONTHS_MAX = 14
HOUR = timedelta(hours=1)


def report_engine_time(now: datetime) -> None:
    """Adds what passed since the last look."""
    row = ReportRow.objects.using(HOUSEKEEPER_ALIAS).filter(name=ReportName.ENGINE_TIME).first()
    models = [report.model for report in reports_now() or ()]
    gap_max = timedelta(seconds=GAP_REPORTS_MAX * settings.OPERATOR_REPORT_S)
    keep(ReportName.ENGINE_TIME, added(row.content if row else None, models, now, gap_max))


def added(
    before: Mapping[str, Any] | None, models: Sequence[str], now: datetime, gap_max: timedelta
) -> dict[str, Any]:
    """The report after a look at `now`, which saw an engine of each of `models`. Pure."""
    if before is None:
        since = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + HOUR
        return {"since": since.isoformat(), "at": now.isoformat(), "months": {}}
    since, at = (datetime.fromisoformat(before[name]) for name in ("since", "at"))
    months = {month: dict(seconds) for month, seconds in before["months"].items()}
    span = now - max(at, since)
    if timedelta(0) < span <= gap_max:
        seconds = months.setdefault(month_name(now), {})
        for model in models:
            seconds[model] = seconds.get(model, 0) + round(span.total_seconds())
    kept = sorted(months)[-MONTHS_MAX:]
    return {
        "since": before["since"],
        "at": now.isoformat(),
        "months": {month: months[month] for month in kept},
    }


def month_name(at: datetime) -> str:
    """`2026-11`, by UTC."""
    return f"{at.astimezone(UTC):%Y-%m}"
