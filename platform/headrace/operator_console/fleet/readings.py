"""What an engine's two last reports say: how much it does in a second, how full it is, its cost.

Pure. Never guesses: what two reports cannot tell is None. Called by the live topic and the page.
"""

from dataclasses import dataclass

from headrace.gateway.announcing import EngineReport
from inference.contracts import BLOCK_TOKENS, EngineStats, Histogram

HOUR_S = 3600
MTOK = 10**6
NO_OBSERVATIONS = Histogram((), (), 0.0)


@dataclass(frozen=True, slots=True)
class EngineShown:
    """One engine now. Rates are of the time between its two last reports, about a second."""

    engine_id: str
    model: str
    bundle_hash: str
    address: str
    up_ms: int
    """For how long it has been seen, without a pause."""
    running: int
    waiting: int
    batch_running: int
    batch_waiting: int
    kv_tokens_used: int
    kv_tokens_total: int
    context_tokens: int | None
    """What each running request holds, on average; None while nothing runs."""
    more_requests: int | None
    """How many more of that size fit."""
    prompt_tokens_per_s: int | None
    output_tokens_per_s: int | None
    cached_tokens_per_s: int | None
    first_token_ms: int | None
    """The mean of those that came between the reports."""
    between_tokens_ms: int | None
    """The same, of one token after another of a request."""
    preemptions: int
    hour_price_pico: int | None
    cost_per_mtok_pico: int | None
    """Of tokens of prompts and answers together, at this second's pace."""


def shown(report: EngineReport, hour_price_pico: int | None) -> EngineShown:
    """What a report says, with what an hour of the engine's GPU costs."""
    now, before = report.now, report.before
    stats = now.stats
    used, total = (blocks * BLOCK_TOKENS for blocks in (stats.blocks_used, stats.blocks_total))
    context = used // stats.running if stats.running else None
    prompt = output = cached = first_ms = between_ms = None
    if before is not None and now.at > before.at and before.stats.step <= stats.step:
        span_s, was = now.at - before.at, before.stats
        prompt = round((stats.prompt_tokens - was.prompt_tokens) / span_s)
        cached = round((stats.prompt_tokens_cached - was.prompt_tokens_cached) / span_s)
        output = round((stats.generation_tokens - was.generation_tokens) / span_s)
        first_ms = mean_ms(stats, was, "time_to_first_token_seconds")
        between_ms = mean_ms(stats, was, "inter_token_latency_seconds")
    return EngineShown(
        engine_id=report.engine_id,
        model=report.model,
        bundle_hash=report.bundle_hash,
        address=report.address,
        up_ms=round(1000 * (now.at - report.seen_since)),
        running=stats.running,
        waiting=stats.waiting,
        batch_running=stats.running - stats.interactive_running,
        batch_waiting=stats.waiting - stats.interactive_waiting,
        kv_tokens_used=used,
        kv_tokens_total=total,
        context_tokens=context,
        more_requests=(total - used) // context if context else None,
        prompt_tokens_per_s=prompt,
        output_tokens_per_s=output,
        cached_tokens_per_s=cached,
        first_token_ms=first_ms,
        between_tokens_ms=between_ms,
        preemptions=stats.preemptions,
        hour_price_pico=hour_price_pico,
        cost_per_mtok_pico=cost_per_mtok_pico(hour_price_pico, prompt, output),
    )


def mean_ms(now: EngineStats, before: EngineStats, name: str) -> int | None:
    """The mean of what was observed between the two; None where nothing was."""
    later, earlier = (one.histograms.get(name, NO_OBSERVATIONS) for one in (now, before))
    count = sum(later.counts) - sum(earlier.counts)
    return round(1000 * (later.total - earlier.total) / count) if count > 0 else None


def cost_per_mtok_pico(
    hour_price_pico: int | None, prompt_per_s: int | None, output_per_s: int | None
) -> int | None:
    """What a million tokens cost at this pace; None without a price, and while nothing is done."""
    tokens_per_hour = HOUR_S * ((prompt_per_s or 0) + (output_per_s or 0))
    if hour_price_pico is None or not tokens_per_hour:
        return None
    return hour_price_pico * MTOK // tokens_per_hour
