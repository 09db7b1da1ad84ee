"""Engines on their curves of throughput and latency: what marks say, and that the page shows it."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import cast

import redis.asyncio
from django.conf import settings
from django.template.loader import render_to_string
from django.test import override_settings

from headrace.console_kit.formats import short_duration_text
from headrace.gateway.announcing import Announcer, EngineReading, EngineReport, engine_reports
from headrace.gateway.engine_trail import TrailMark, grown
from headrace.operator_console.fleet.curves import CURVES_MAX, CurvePoint, curves_context, points
from inference.client.native import EngineClient
from inference.contracts import EngineStats, Histogram
from tests.console.engines import IDLE, ToldEngine

START = 1_800_000_000.0
TEMPLATE = "operator_console/live/curves.html"


def stats(tokens: int, gaps: int, gaps_s: float, step: int = 100) -> EngineStats:
    histograms = {"inter_token_latency_seconds": Histogram((1.0,), (gaps, 0), gaps_s)}
    return replace(IDLE, step=step, generation_tokens=tokens, histograms=histograms)


def report(*marks: TrailMark, engine_id: str = "engine-0") -> EngineReport:
    now = EngineReading(marks[-1].at, IDLE)
    return EngineReport(engine_id, "smollm2", now, None, trail=marks)


BUSY = (
    TrailMark(START, 0, 0, 0.0),
    TrailMark(START + 5, 500, 400, 5.0),
    TrailMark(START + 10, 1500, 1200, 25.0),
)
IDLE_AFTER = (*BUSY, TrailMark(START + 15, 1500, 1200, 25.0))


def test_a_point_is_the_mean_between_two_marks() -> None:
    assert points(BUSY) == [
        CurvePoint(START + 5, 12_500, 100),
        CurvePoint(START + 10, 25_000, 200),
    ]


def test_while_no_token_follows_another_there_is_no_point() -> None:
    assert points(IDLE_AFTER) == points(BUSY)
    assert points(BUSY[:1]) == []


def test_a_trail_has_a_mark_every_few_seconds_and_forgets_old_ones() -> None:
    trail: tuple[TrailMark, ...] = ()
    seconds = 3 * settings.ENGINE_TRAIL_S
    for second in range(seconds):
        trail = grown(trail, START + second, stats(second, second, float(second)))

    assert len(trail) == settings.ENGINE_TRAIL_S // settings.ENGINE_TRAIL_EVERY_S + 1
    assert trail[-1].at - trail[0].at == settings.ENGINE_TRAIL_S
    assert all(now.at - was.at == settings.ENGINE_TRAIL_EVERY_S for was, now in pairwise(trail))


def test_the_latest_point_is_marked_unless_the_engine_is_idle() -> None:
    busy, idle = curves_context([report(*BUSY), report(*IDLE_AFTER)])["curves"]

    assert (busy.chart.is_last_marked, idle.chart.is_last_marked) == (True, False)
    part = render_to_string(TEMPLATE, curves_context([report(*BUSY)]))
    assert "25 ms between tokens" in part
    assert "Idle now" in render_to_string(TEMPLATE, curves_context([report(*IDLE_AFTER)]))


def test_the_table_has_what_is_drawn_the_latest_first() -> None:
    [curve] = curves_context([report(*BUSY)])["curves"]

    assert curve.chart.data["dots"] == [{"x": 12_500, "y": 100}, {"x": 25_000, "y": 200}]
    assert [row.cells[:2] for row in curve.chart.twin.rows] == [
        ["08:00:10", "25 ms"],
        ["08:00:05", "12.5 ms"],
    ]


def test_an_engine_without_points_says_what_will_be_there() -> None:
    part = render_to_string(TEMPLATE, curves_context([report(*BUSY[:1])]))

    assert "appear here while it answers" in part
    assert "<canvas" not in part


def test_where_no_engine_is_known_the_part_is_empty() -> None:
    for context in (curves_context(None), curves_context([])):
        part = render_to_string(TEMPLATE, context)
        assert part.split() == ["<div", 'id="live-curves">', "</div>"]


def test_of_a_large_fleet_the_first_are_drawn_in_a_message_that_is_sent() -> None:
    seconds = range(0, settings.ENGINE_TRAIL_S + 1, settings.ENGINE_TRAIL_EVERY_S)
    marks = [TrailMark(START + one, 12_345 * one, 100 * one, 12.345 * one) for one in seconds]
    reports = [report(*marks, engine_id=f"engine-{index:02}") for index in range(CURVES_MAX + 8)]

    part = render_to_string(TEMPLATE, curves_context(reports))

    assert part.count("<canvas") == CURVES_MAX
    assert f"first {CURVES_MAX} of {CURVES_MAX + 8} engines" in part
    assert len(part.encode()) < settings.LIVE_MESSAGE_BYTES_MAX


def test_a_report_carries_the_trail_until_the_engine_starts_anew(django_database: object) -> None:
    async def told() -> list[EngineReport]:
        engine = ToldEngine("trailing", "smollm2")
        async with redis.asyncio.Redis.from_url(settings.REDIS_URL) as connection:
            await connection.delete("live:engine:trailing")
            announcer = Announcer(connection, cast("EngineClient", engine))
            seen = []
            for now in (stats(0, 0, 0.0, 1), stats(500, 400, 5.0, 2), stats(9, 9, 0.1, 1)):
                engine.now = now
                await connection.delete("live:asked:trailing")
                await announcer.announce()
                reports = await engine_reports(connection)
                seen += [one for one in reports if one.engine_id == "trailing"]
        return seen

    with override_settings(ENGINE_TRAIL_EVERY_S=0):
        first, second, anew = asyncio.run(told())

    assert [len(one.trail) for one in (first, second, anew)] == [1, 2, 1]
    assert [one.between_us for one in points(second.trail)] == [12_500]
    assert first.address == str(settings.ENGINE_SOCKET)


def test_short_times_keep_three_digits() -> None:
    said = [short_duration_text(one) for one in (None, 0, 8_354, 412_600, 2_410_000)]
    assert said == ["\u2013", "0 ms", "8.35 ms", "413 ms", "2.41 s"]
