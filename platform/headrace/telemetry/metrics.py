"""The metrics of a web or worker process, and the engine's under the names that boards expect.

No metric carries a tenant label: /metrics must not tell one tenant about another.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from inference.contracts import EngineStats

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


class EngineCollector(Collector):
    """Mirrors the last engine snapshot under vLLM's metric names."""

    def __init__(self) -> None:
        self.model = ""
        self.stats: EngineStats | None = None

    def collect(self) -> "list[GaugeMetricFamily | CounterMetricFamily]":
        """Prometheus families of the last snapshot; none before the first."""
        stats = self.stats
        if stats is None:
            return []
        used = stats.blocks_used / stats.blocks_total if stats.blocks_total else 0.0
        families: list[GaugeMetricFamily | CounterMetricFamily] = []
        for name, value in (
            ("vllm:num_requests_running", float(stats.running)),
            ("vllm:num_requests_waiting", float(stats.waiting)),
            ("vllm:kv_cache_usage_perc", used),
            ("headrace_engine_journal_unacknowledged", float(stats.journal_unacknowledged)),
        ):
            gauge = GaugeMetricFamily(name, name, labels=["model_name"])
            gauge.add_metric([self.model], value)
            families.append(gauge)
        for name, count in (
            ("vllm:prompt_tokens", stats.prompt_tokens),
            ("vllm:prompt_tokens_cached", stats.prompt_tokens_cached),
            ("vllm:generation_tokens", stats.generation_tokens),
            ("vllm:num_preemptions", stats.preemptions),
        ):
            counter = CounterMetricFamily(name, name, labels=["model_name"])
            counter.add_metric([self.model], count)
            families.append(counter)
        finished = CounterMetricFamily(
            "vllm:request_success", "Finished requests", labels=["model_name", "finished_reason"]
        )
        for reason, count in stats.finished.items():
            finished.add_metric([self.model, reason], count)
        families.append(finished)
        return families


ENGINE = EngineCollector()
REGISTRY.register(ENGINE)


def render() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
