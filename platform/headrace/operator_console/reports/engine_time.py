"""How long engines were up, by month, model and engine: what a margin is estimated by.

A worker adds the time since its last look for each engine that reports; a gap longer than a few
looks is not counted, for nobody knows. Engines without a price of their own count together, so that
what is kept is bounded. Begins with the first whole hour after the first look. Called by a worker
every OPERATOR_REPORT_S.
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
OTHERS = ""
"""Stands for all engines that are not named in GPU_HOUR_PRICES_PICO."""


def report_engine_time(now: datetime) -> None:
    """Adds what passed since the last look."""
    row = ReportRow.objects.using(HOUSEKEEPER_ALIAS).filter(name=ReportName.ENGINE_TIME).first()
    named = settings.GPU_HOUR_PRICES_PICO
    seen = [
        (one.model, one.engine_id if one.engine_id in named else OTHERS)
        for one in reports_now() or ()
    ]
    gap_max = timedelta(seconds=GAP_REPORTS_MAX * settings.OPERATOR_REPORT_S)
    keep(ReportName.ENGINE_TIME, added(row.content if row else None, seen, now, gap_max))


def added(
    before: Mapping[str, Any] | None,
    seen: Sequence[tuple[str, str]],
    now: datetime,
    gap_max: timedelta,
) -> dict[str, Any]:
    """The report after a look at `now`, which saw these models and engines. Pure."""
    if before is None:
        since = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + HOUR
        return {"since": since.isoformat(), "at": now.isoformat(), "months": {}}
    since, at = (datetime.fromisoformat(before[name]) for name in ("since", "at"))
    months = {month: _by_engine(models) for month, models in before["months"].items()}
    span = now - max(at, since)
    if timedelta(0) < span <= gap_max:
        models = months.setdefault(month_name(now), {})
        for model, engine in seen:
            seconds = models.setdefault(model, {})
            seconds[engine] = seconds.get(engine, 0) + round(span.total_seconds())
    kept = sorted(months)[-MONTHS_MAX:]
    return {
        "since": before["since"],
        "at": now.isoformat(),
        "months": {month: months[month] for month in kept},
    }


def engine_seconds(content: Mapping[str, Any], at: datetime) -> dict[str, dict[str, int]]:
    """A report's seconds of the month of `at`, by model and engine."""
    return _by_engine(content["months"].get(month_name(at), {}))


def month_name(at: datetime) -> str:
    """`2026-11`, by UTC."""
    return f"{at.astimezone(UTC):%Y-%m}"


def _by_engine(models: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    # One number for a model was written before engines had prices of their own.
    return {
        model: {OTHERS: seconds} if isinstance(seconds, int) else dict(seconds)
        for model, seconds in models.items()
    }
