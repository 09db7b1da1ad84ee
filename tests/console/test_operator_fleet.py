"""What two reports of an engine say, and that the page shows it; the rest is unknown."""

import asyncio
from dataclasses import replace
from typing import cast

import pytest
import redis.asyncio
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.template.loader import render_to_string
from django.test import override_settings

from billing.contracts import PICO
from headrace.gateway.announcing import Announcer, EngineReading, EngineReport, engine_reports
from headrace.operator_console.fleet.page import fleet_context
from headrace.operator_console.fleet.readings import shown
from headrace.operator_console.hour_prices import (
    PRICED_ENGINES_MAX,
    parsed_price_pico,
    parsed_prices_pico,
)
from inference.client.native import EngineClient
from inference.contracts import BLOCK_TOKENS, Histogram
from tests.console.engines import IDLE, ToldEngine
from tests.console.operators import operator

BUSY = replace(
    IDLE,
    step=110,
    running=4,
    waiting=2,
    blocks_used=400,
    prompt_tokens=12_000,
    prompt_tokens_cached=1500,
    generation_tokens=5100,
    histograms={
        "time_to_first_token_seconds": Histogram((1.0,), (7, 0), 1.5),
        "inter_token_latency_seconds": Histogram((1.0,), (190, 0), 6.0),
    },
    interactive_running=3,
    interactive_waiting=2,
)
REPORT = EngineReport(
    *("engine-0", "smollm2", EngineReading(102.0, BUSY), EngineReading(100.0, IDLE)),
    bundle_hash="abc123",
    seen_since=42.0,
    address="/run/engine.sock",
)


def test_rates_are_of_the_time_between_two_reports() -> None:
    engine = shown(REPORT, None)

    assert (engine.prompt_tokens_per_s, engine.cached_tokens_per_s) == (1000, 250)
    assert engine.output_tokens_per_s == 50
    assert engine.first_token_ms == 250
    assert engine.between_tokens_ms == 40
    assert (engine.batch_running, engine.batch_waiting) == (1, 0)
    assert engine.up_ms == 60_000


def test_how_many_more_fit_goes_by_what_runs() -> None:
    engine = shown(REPORT, None)

    assert engine.context_tokens == 100 * BLOCK_TOKENS
    assert engine.more_requests == 6


def test_a_million_tokens_cost_what_the_hour_costs_at_this_pace() -> None:
    engine = shown(REPORT, 378 * PICO // 100)

    assert engine.cost_per_mtok_pico == PICO  # 1050 tokens a second are 3.78 million an hour


@pytest.mark.parametrize(
    "report",
    [
        replace(REPORT, before=None),
        replace(REPORT, before=REPORT.now),
        replace(REPORT, before=EngineReading(101.0, replace(IDLE, step=10**6))),
        replace(REPORT, now=EngineReading(102.0, IDLE)),
    ],
    ids=["first report", "same report", "started anew", "idle"],
)
def test_what_reports_cannot_tell_is_unknown(report: EngineReport) -> None:
    engine = shown(report, PICO)

    assert (engine.first_token_ms, engine.between_tokens_ms) == (None, None)
    assert engine.cost_per_mtok_pico is None


@pytest.mark.parametrize(
    ("reports", "said"),
    [
        (None, "Nobody knows"),
        ([], "No engine reports"),
        ([REPORT], "6 at 1,600 tokens"),
        ([REPORT], "abc123"),
        ([REPORT], "/run/engine.sock"),
    ],
)
def test_the_part_says_what_is_known(reports: list[EngineReport] | None, said: str) -> None:
    part = render_to_string("operator_console/live/fleet.html", fleet_context(reports))

    assert said in part
    assert part.lstrip().startswith('<div id="live-fleet"')


@override_settings(GPU_HOUR_PRICE_PICO=378 * PICO // 100, GPU_HOUR_CURRENCY="EUR")
def test_the_part_shows_the_cost() -> None:
    part = render_to_string("operator_console/live/fleet.html", fleet_context([REPORT]))

    assert "€1.00" in part


@override_settings(GPU_HOUR_PRICES_PICO={"engine-0": 756 * PICO // 100})
def test_an_engine_costs_its_own_price() -> None:
    reports = [REPORT, replace(REPORT, engine_id="engine-1")]
    with override_settings(GPU_HOUR_PRICE_PICO=378 * PICO // 100):
        own, other = fleet_context(reports)["engines"]
    unpriced = fleet_context(reports)["engines"][1]

    assert (own.hour_price_pico, own.cost_per_mtok_pico) == (756 * PICO // 100, 2 * PICO)
    assert (other.hour_price_pico, other.cost_per_mtok_pico) == (378 * PICO // 100, PICO)
    assert (unpriced.hour_price_pico, unpriced.cost_per_mtok_pico) == (None, None)


PRICE = "HEADRACE_GPU_HOUR_PRICE"
PRICES = "HEADRACE_GPU_HOUR_PRICES"


def test_prices_of_an_hour_are_read_as_written() -> None:
    assert parsed_prices_pico(PRICES, " engine-a=2.10, engine-b=0,") == {
        "engine-a": 21 * PICO // 10,
        "engine-b": 0,
    }
    assert parsed_prices_pico(PRICES, "") == {}
    assert parsed_price_pico(PRICE, "2.50") == 5 * PICO // 2
    assert parsed_price_pico(PRICE, "") is None


@pytest.mark.parametrize(
    "text",
    ["engine-a", "engine-a=", "=2", "a=two", "a=-1", "a=NaN", "a=1e9", "a=1,a=2", "a=b=1"],
)
def test_prices_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=PRICES):
        parsed_prices_pico(PRICES, text)


@pytest.mark.parametrize("text", ["two", "-1", "NaN", "Infinity", "1e9"])
def test_a_price_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=f"{PRICE} must be an amount"):
        parsed_price_pico(PRICE, text)


def test_more_prices_than_a_house_has_engines_are_refused() -> None:
    named = ",".join(f"engine-{index}=1" for index in range(PRICED_ENGINES_MAX + 1))
    with pytest.raises(ImproperlyConfigured, match="more than"):
        parsed_prices_pico(PRICES, named)


def test_an_engine_counts_as_up_since_it_was_first_seen(django_database: object) -> None:
    async def told() -> list[EngineReport]:
        engine = ToldEngine("mine", "smollm2")
        async with redis.asyncio.Redis.from_url(settings.REDIS_URL) as connection:
            await connection.delete("live:engine:mine")
            announcer = Announcer(connection, cast("EngineClient", engine))
            seen = []
            for stats in (IDLE, BUSY, replace(IDLE, step=1)):
                engine.now = stats
                await connection.delete("live:asked:mine")
                await announcer.announce()
                reports = await engine_reports(connection)
                seen += [one for one in reports if one.engine_id == "mine"]
        return seen

    first, second, anew = asyncio.run(told())

    assert first.seen_since == second.seen_since == first.now.at
    assert anew.seen_since == anew.now.at > first.now.at
    assert second.before == first.now


def test_the_page_follows_the_fleet(django_database: object) -> None:
    page = operator().get("/operator/")

    assert 'ws-connect="/operator/live?topics=fleet%2Ccurves"' in page.text
    assert "HEADRACE_GPU_HOUR_PRICE" in page.text
    with override_settings(GPU_HOUR_PRICE_PICO=378 * PICO // 100, GPU_HOUR_CURRENCY="EUR"):
        assert "€3.78" in operator().get("/operator/").text
