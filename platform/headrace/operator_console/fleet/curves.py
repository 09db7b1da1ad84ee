"""Where each engine is on its curve of throughput and latency, and where it was: a chart for each.

Pure. A point is the mean of the time between two marks of the engine's trail; where no token came
after another one there is none. Called by the live topic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from django.conf import settings

from headrace.console_kit.charts import Axis, Dot, Scatter, Unit
from headrace.gateway.announcing import EngineReport
from headrace.gateway.engine_trail import TrailMark

CURVES_MAX = 12
"""Engines with a chart: what a page shows of them is sent whole."""
MICROSECONDS = 10**6


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """An engine between two marks."""

    at: float
    """When it ended."""
    between_us: int
    """Of tokens of a request."""
    output_tokens_per_s: int


@dataclass(frozen=True, slots=True)
class Curve:
    """An engine's chart."""

    engine_id: str
    now: CurvePoint | None
    """None while it is idle."""
    chart: Scatter


def points(trail: Sequence[TrailMark]) -> list[CurvePoint]:
    """One for each pair of marks between which a token came after another, in turn."""
    found = []
    for was, now in pairwise(trail):
        gaps, span_s = now.gaps - was.gaps, now.at - was.at
        if gaps > 0 and span_s > 0:
            between_us = round(MICROSECONDS * (now.gaps_s - was.gaps_s) / gaps)
            rate = round((now.output_tokens - was.output_tokens) / span_s)
            found.append(CurvePoint(now.at, between_us, rate))
    return found


def curves_context(reports: Sequence[EngineReport] | None) -> Mapping[str, Any]:
    """What the part shows: nothing where no engine is known."""
    engines = list(reports or ())
    return {
        "curves": [_curve(index, one) for index, one in enumerate(engines[:CURVES_MAX])],
        "engines": len(engines),
        "minutes": settings.ENGINE_TRAIL_S // 60,
        "every_s": settings.ENGINE_TRAIL_EVERY_S,
    }


def _curve(index: int, report: EngineReport) -> Curve:
    found = points(report.trail)
    now = found[-1] if found and found[-1].at == report.trail[-1].at else None
    chart = Scatter(
        f"curve-{index}",
        f"Throughput and latency of {report.engine_id}",
        Axis("Between tokens", Unit.MICROSECONDS),
        Axis("Output tokens / s", Unit.TOKENS),
        [Dot(_clock_text(one.at), one.between_us, one.output_tokens_per_s) for one in found],
        is_last_marked=now is not None,
        empty="Nothing was answered lately. Its time between tokens, and how many it puts out a "
        "second, appear here while it answers.",
    )
    return Curve(report.engine_id, now, chart)


def _clock_text(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"
