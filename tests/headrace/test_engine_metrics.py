"""An engine's snapshot as Prometheus text: the names that boards made for vLLM expect."""

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from headrace.telemetry.metrics import EngineCollector
from inference.contracts import EngineStats, Histogram

LABELS = {"model_name": "m", "engine": "engine-7"}
STATS = EngineStats(
    step=9,
    running=2,
    waiting=3,
    blocks_total=200,
    blocks_used=50,
    blocks_cached=10,
    prompt_tokens=1000,
    prompt_tokens_cached=160,
    generation_tokens=77,
    preemptions=1,
    finished={"stop": 4, "timed_out": 1},
    journal_unacknowledged=5,
    step_age_s=0.0,
    drafted_tokens=30,
    accepted_tokens=20,
    histograms={"time_to_first_token_seconds": Histogram((0.1, 1.0), (2, 3, 4), 12.5)},
)


def samples(collector: EngineCollector) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    registry = CollectorRegistry()
    registry.register(collector)
    text = generate_latest(registry).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_an_engine_that_is_away_shows_nothing() -> None:
    collector = EngineCollector()
    collector.show("m", "", None)

    assert samples(collector) == {}


def test_every_number_of_the_snapshot_has_vllms_name_and_labels() -> None:
    collector = EngineCollector()
    collector.show("m", "engine-7", STATS)
    shown = samples(collector)

    def value(name: str, **labels: str) -> float:
        return shown[name, frozenset((LABELS | labels).items())]

    assert value("vllm:num_requests_running") == 2
    assert value("vllm:num_requests_waiting") == 3
    assert value("vllm:kv_cache_usage_perc") == 0.25
    assert value("vllm:cache_config_info", block_size="16", num_gpu_blocks="200") == 1
    assert value("vllm:prompt_tokens_total") == value("vllm:prefix_cache_queries_total") == 1000
    assert value("vllm:prompt_tokens_cached_total") == value("vllm:prefix_cache_hits_total") == 160
    assert value("vllm:generation_tokens_total") == 77
    assert value("vllm:num_preemptions_total") == 1
    assert value("vllm:spec_decode_num_draft_tokens_total") == 30
    assert value("vllm:spec_decode_num_accepted_tokens_total") == 20
    assert value("vllm:request_success_total", finished_reason="timed_out") == 1
    assert value("headrace_engine_journal_unacknowledged") == 5


def test_histograms_are_cumulative_and_end_with_all_observations() -> None:
    collector = EngineCollector()
    collector.show("m", "engine-7", STATS)
    shown = samples(collector)
    name = "vllm:time_to_first_token_seconds"
    buckets = {
        dict(labels)["le"]: value for (n, labels), value in shown.items() if n == f"{name}_bucket"
    }

    assert buckets == {"0.1": 2, "1.0": 5, "+Inf": 9}
    assert shown[f"{name}_count", frozenset(LABELS.items())] == 9
    assert shown[f"{name}_sum", frozenset(LABELS.items())] == 12.5
