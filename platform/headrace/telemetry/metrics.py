"""The metrics of a web or worker process, and the engine's under the names that boards expect.

No metric carries a tenant label: /metrics must not tell one tenant about another.
"""

import itertools
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from inference import contracts
from inference.contracts import BLOCK_TOKENS, EngineStats

REGISTRY = CollectorRegistry()
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)

REQUESTS = Counter("headrace_requests", "Requests by outcome", ["outcome"], registry=REGISTRY)
REQUESTS_LIVE = Gauge(
    "headrace_requests_live", "Requests under way, from arrival to settle", registry=REGISTRY
)
TOKENS = Counter("headrace_tokens", "Tokens settled, by price class", ["class"], registry=REGISTRY)
TIME_TO_FIRST_TOKEN = Histogram(
    "headrace_time_to_first_token_seconds",
    "From the request's arrival to its first token",
    buckets=_SECONDS,
    registry=REGISTRY,
)
HOLD_SECONDS = Histogram(
    "headrace_hold_seconds", "Duration of one hold", buckets=_SECONDS, registry=REGISTRY
)
SETTLE_SECONDS = Histogram(
    "headrace_settle_seconds", "Duration of one settle", buckets=_SECONDS, registry=REGISTRY
)
SETTLE_RETRIES = Counter(
    "headrace_settle_retries", "Settles repeated because the database was away", registry=REGISTRY
)
ORPHANS_SETTLED = Counter(
    "headrace_orphans_settled", "Finishes settled for processes that died", registry=REGISTRY
)
REDIS_FALLBACKS = Counter(
    "headrace_redis_fallbacks", "Limit decisions made locally, Redis being away", registry=REGISTRY
)
LIMIT_HITS = Counter("headrace_limit_hits", "Named limits met", ["limit"], registry=REGISTRY)


IDEMPOTENCY_CONFLICTS = Counter(
    "headrace_idempotency_conflicts",
    "Repetitions under an Idempotency-Key that could not be answered as the first time",
    ["reason"],
    registry=REGISTRY,
)


class EngineCollector(Collector):
    """Mirrors the last engine snapshot under vLLM's metric names, label names and units."""

    def __init__(self) -> None:
        self._labels = {"model_name": "", "engine": ""}
        self._stats: EngineStats | None = None

    def show(self, model: str, engine: str, stats: EngineStats | None) -> None:
        """Takes the snapshot that the next exposition shows; None for an engine that is away."""
        self._labels = {"model_name": model, "engine": engine}
        self._stats = stats

    def collect(self) -> list[Metric]:
        """Prometheus families of the snapshot; none without one."""
        stats = self._stats
        if stats is None:
            return []
        used = stats.blocks_used / stats.blocks_total if stats.blocks_total else 0.0
        cache = {"block_size": str(BLOCK_TOKENS), "num_gpu_blocks": str(stats.blocks_total)}
        families: list[Metric] = [
            self._gauge("vllm:num_requests_running", stats.running),
            self._gauge("vllm:num_requests_waiting", stats.waiting),
            self._gauge("vllm:kv_cache_usage_perc", used),
            self._gauge("vllm:cache_config_info", 1, cache),
            self._gauge("headrace_engine_journal_unacknowledged", stats.journal_unacknowledged),
            self._counter("vllm:prompt_tokens", stats.prompt_tokens),
            self._counter("vllm:prompt_tokens_cached", stats.prompt_tokens_cached),
            self._counter("vllm:prefix_cache_queries", stats.prompt_tokens),
            self._counter("vllm:prefix_cache_hits", stats.prompt_tokens_cached),
            self._counter("vllm:generation_tokens", stats.generation_tokens),
            self._counter("vllm:num_preemptions", stats.preemptions),
            self._counter("vllm:spec_decode_num_draft_tokens", stats.drafted_tokens),
            self._counter("vllm:spec_decode_num_accepted_tokens", stats.accepted_tokens),
        ]
        finished = CounterMetricFamily(
            "vllm:request_success", "Finished requests", labels=[*self._labels, "finished_reason"]
        )
        for reason, count in stats.finished.items():
            finished.add_metric([*self._labels.values(), reason], count)
        families.append(finished)
        families += [self._histogram(name, each) for name, each in stats.histograms.items()]
        return families

    def _gauge(self, name: str, value: float, extra: Mapping[str, str] | None = None) -> Metric:
        labels = self._labels | dict(extra or {})
        family = GaugeMetricFamily(name, name, labels=list(labels))
        family.add_metric(list(labels.values()), value)
        return family

    def _counter(self, name: str, value: int) -> Metric:
        family = CounterMetricFamily(name, name, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _histogram(self, name: str, histogram: contracts.Histogram) -> Metric:
        """Prometheus counts each observation under every bound that it does not exceed."""
        family = HistogramMetricFamily(f"vllm:{name}", name, labels=list(self._labels))
        bounds = [*map(floatToGoString, histogram.bounds), "+Inf"]
        buckets = zip(bounds, itertools.accumulate(histogram.counts), strict=True)
        family.add_metric(list(self._labels.values()), list(buckets), histogram.total)
        return family


ENGINE = EngineCollector()
REGISTRY.register(ENGINE)


def render() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
