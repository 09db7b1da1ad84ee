"""What an engine had done by moments of the last minutes: its trail, which its report carries.

Pure and bounded: a mark every ENGINE_TRAIL_EVERY_S, none older than ENGINE_TRAIL_S. Called by the
announcer; the operator's page makes a curve of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings

from inference.contracts import EngineStats

GAPS = "inter_token_latency_seconds"


@dataclass(frozen=True, slots=True)
class TrailMark:
    """Sums since the engine started: what it did between two marks is their difference."""

    at: float
    """Seconds since the epoch."""
    output_tokens: int
    gaps: int
    """How often a token of a request came after another one."""
    gaps_s: float
    """How long all of that took."""


def grown(trail: Sequence[TrailMark], at: float, stats: EngineStats) -> tuple[TrailMark, ...]:
    """The trail at `at`, with a mark for it where the last one is old enough."""
    if trail and at - trail[-1].at < settings.ENGINE_TRAIL_EVERY_S:
        return tuple(trail)
    kept = [mark for mark in trail if at - mark.at <= settings.ENGINE_TRAIL_S]
    gaps = stats.histograms.get(GAPS)
    count, total_s = (sum(gaps.counts), gaps.total) if gaps is not None else (0, 0.0)
    return (*kept, TrailMark(at, stats.generation_tokens, count, total_s))
