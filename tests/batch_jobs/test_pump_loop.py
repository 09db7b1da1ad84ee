"""Turns of the pump, with a scripted pipeline behind the port and PostgreSQL in front."""

import asyncio
import json
from dataclasses import replace
from uuid import UUID

import pytest

from batch_jobs.models import BulkAttempt, BulkItem, BulkJob, SummaryPlan
from batch_jobs.ports import BulkRequest, EngineLoad
from tests.batch_jobs.cast import Tenant
from tests.batch_jobs.pump_cast import (
    Node,
    answer,
    check_totals,
    item_rows,
    job_row,
    lapse,
    plant,
    plant_tree,
    states,
    take,
)
from tests.batch_jobs.scripted_pipeline import (
    CHARGE_PICO,
    ScriptedPipeline,
    Wakes,
    outcome,
    pump_of,
    text_of,
    turn,
)

HOUSEKEEPER = "housekeeper"
LINES = [f"line {number}" for number in range(20)]


def test_a_batch_runs_to_its_end(acme: Tenant) -> None:
    port, wakes = ScriptedPipeline(), Wakes()
    job_id = plant(acme, *LINES)
    assert turn(port, wakes) is False
    job = check_totals(job_id)
    assert (job.state, job.items_completed, job.charge_pico) == (
        "finalizing",
        20,
        20 * CHARGE_PICO,
    )
    assert sorted(port.texts) == sorted(LINES)
    assert 1 < port.live_max <= 16  # at most 8 of them computing
    assert wakes.pumps >= 1
    assert wakes.tendings == 1
    (first, *_) = item_rows(job_id)
    assert json.loads(first.answer or "") == {"answer": "answer to line 0"}
    assert (first.prompt_tokens, first.cached_tokens, first.completion_tokens) == (10, 4, 3)
    assert {request.endpoint for request in port.asked} == {"/v1/chat/completions"}


def test_a_line_refused_for_what_it_is_fails_and_its_neighbour_does_not(acme: Tenant) -> None:
    port = ScriptedPipeline(outcomes={"a": [outcome("invalid_value", 400)]})
    job_id = plant(acme, "a", "b")
    turn(port)
    job = check_totals(job_id)
    assert (job.items_completed, job.items_failed) == (1, 1)
    failed = item_rows(job_id)[0]
    assert (failed.status_code, failed.error_code, failed.error_message) == (
        400,
        "invalid_value",
        "about invalid_value",
    )


def test_a_failure_of_ours_is_tried_again_up_to_the_limit(acme: Tenant) -> None:
    port = ScriptedPipeline(
        outcomes={
            "a": [outcome("engine_error", retryable=True)] * 2,
            "b": [outcome("engine_error", retryable=True)] * 3,
        }
    )
    job_id = plant(acme, "a", "b")
    turn(port)
    assert states(job_id) == ["done", "failed"]
    assert (port.texts.count("a"), port.texts.count("b")) == (3, 3)
    assert check_totals(job_id).state == "finalizing"


def test_a_line_that_keeps_killing_its_workers_fails(acme: Tenant) -> None:
    job_id = plant(acme, "a")
    for _ in range(3):
        (item,) = take()
        lapse()
    assert item.attempts == 3
    port = ScriptedPipeline()
    turn(port)
    (row,) = item_rows(job_id)
    assert (row.state, row.error_code) == ("failed", "attempts_exhausted")
    assert port.asked == []


def test_what_never_reached_an_engine_is_no_attempt(acme: Tenant) -> None:
    full = outcome("overloaded", 503, retryable=True, deferred=True)
    port = ScriptedPipeline(outcomes={"a": [full] * 5})
    job_id = plant(acme, "a")
    turn(port)
    (row,) = item_rows(job_id)
    assert (row.state, row.attempts) == ("done", 1)
    assert len(port.asked) == 6
    assert BulkAttempt.objects.using(HOUSEKEEPER).filter(item_id=row.id).count() == 1


def test_what_all_lines_would_meet_holds_the_job_back_and_not_the_others(
    acme: Tenant, globex: Tenant
) -> None:
    empty = outcome("insufficient_quota", 429, retryable=True, deferred=True, job_wide=True)
    port = ScriptedPipeline(outcomes={line: [empty] for line in LINES})
    poor, rich = plant(acme, *LINES), plant(globex, "rich")
    turn(port)
    assert states(rich) == ["done"]
    assert states(poor) == ["queued"] * 20
    job = job_row(poor)
    assert job.state == "in_progress"
    assert job.retry_at > job.created_at
    assert len(port.asked) <= 17


def test_a_price_that_rose_stays_within_the_budget(acme: Tenant) -> None:
    dearer = outcome("above_bound", 429, retryable=True, deferred=True)
    job_id = plant(acme, *"abc", budget_pico=60)
    port = ScriptedPipeline(
        outcomes={
            text: [replace(dearer, bound_pico=bound_pico)]
            for text, bound_pico in (("a", 30), ("b", 50), ("c", 60))
        }
    )
    turn(port)
    assert sorted(port.texts) == ["a", "a", "b", "b", "c"]
    assert {request.bound_pico for request in port.asked} == {10, 30, 50}
    job = check_totals(job_id)
    assert (job.state, job.pause_reason, job.charge_pico) == ("paused", "budget", 2 * CHARGE_PICO)
    assert [(row.state, row.attempts) for row in item_rows(job_id)] == [
        ("done", 1),
        ("done", 1),
        ("queued", 0),
    ]


def test_a_summarisation_whose_key_is_revoked_is_paused(acme: Tenant) -> None:
    revoked = outcome("invalid_api_key", 401, retryable=True, deferred=True, job_wide=True)
    port = ScriptedPipeline()
    job_id = summary_job(acme, "doc")

    async def refuse(request: BulkRequest) -> None:
        port.outcomes[text_of(request)] = [revoked]

    port.on_start = refuse
    turn(port)
    job = job_row(job_id)
    assert (job.state, job.pause_reason) == ("paused", "key")
    assert states(job_id) == ["queued"]


def test_a_summary_is_asked_with_its_jobs_options_and_stored_as_text(acme: Tenant) -> None:
    port = ScriptedPipeline()
    job_id = summary_job(acme, "doc")
    turn(port)
    (row,) = item_rows(job_id)
    (request,) = port.asked
    assert text_of(request).endswith(line_text("doc"))
    assert request.body["max_tokens"] == 96
    assert row.answer == f"answer to {text_of(request)}"


def test_a_document_in_parts_is_merged_from_its_parts_answers(acme: Tenant) -> None:
    port = ScriptedPipeline()
    job_id = plant_tree(acme, Node("doc", [Node("p0"), Node("p1")]))
    plan(acme, job_id)
    file_id = item_rows(plant(acme, "left", "right", state="paused"))[0].source_id
    for part, item in enumerate(item_rows(job_id)[1:]):
        BulkItem.objects.using(HOUSEKEEPER).filter(id=item.id).update(
            source_id=file_id, source_offset=part, source_bytes=4
        )
    turn(port)
    job = check_totals(job_id)
    assert (job.state, job.items_completed, job.charge_pico) == ("finalizing", 1, 3 * CHARGE_PICO)
    first, second = (row.answer or "" for row in item_rows(job_id)[1:])
    assert port.texts[-1].endswith(f"{first}\n\n{second}")
    assert "consecutive parts" in port.texts[-1]


def test_a_line_whose_file_is_gone_fails_and_others_do_not(acme: Tenant) -> None:
    port = ScriptedPipeline()
    job_id = plant(acme, "a", "b")
    first = item_rows(job_id)[0]
    BulkItem.objects.using(HOUSEKEEPER).filter(id=first.id).update(source_offset=10**9)
    turn(port)
    assert states(job_id) == ["failed", "done"]
    assert item_rows(job_id)[0].error_code == "input_file_missing"


def test_what_an_earlier_worker_stored_is_only_charged(acme: Tenant) -> None:
    port = ScriptedPipeline()
    job_id = plant(acme, "a")
    (item,) = take()
    answer(item)
    port.charges[item.request_id] = 42
    lapse()
    turn(port)
    assert check_totals(job_id).charge_pico == 42
    assert port.asked == []


def test_a_turn_leaves_its_requests_in_flight_to_the_next(acme: Tenant) -> None:
    async def scenario() -> tuple[int, int, int]:
        go_on = asyncio.Event()

        async def wait(_: BulkRequest) -> None:
            await go_on.wait()

        port = ScriptedPipeline(on_start=wait)
        pump = pump_of(port, turn_s=0.1)
        assert await pump.turn() is True
        left = pump.in_flight
        assert await pump.turn() is True
        asked = len(port.asked)
        go_on.set()
        await pump.turn()
        await pump.drain()
        return left, asked, pump.in_flight

    job_id = plant(acme, *LINES)
    left, asked, after = asyncio.run(scenario())
    assert left > 0
    assert asked <= 8
    assert after == 0
    assert len(set(states(job_id))) <= 2


def test_a_worker_that_ends_gives_back_what_it_cannot_finish(acme: Tenant) -> None:
    async def scenario() -> ScriptedPipeline:
        hangs = asyncio.Event()

        async def hang(request: BulkRequest) -> None:
            if text_of(request) == "slow":
                hangs.set()
                await asyncio.Event().wait()

        port = ScriptedPipeline(on_start=hang)
        pump = pump_of(port, stop_s=0.2)
        turning = asyncio.create_task(pump.turn())
        await asyncio.wait_for(hangs.wait(), 30)
        pump.stop()
        assert await turning is False
        assert pump.in_flight == 0
        return port

    job_id = plant(acme, "slow", "quick")
    port = asyncio.run(scenario())
    slow, quick = item_rows(job_id)
    assert (slow.state, slow.attempts, quick.state) == ("queued", 0, "done")
    assert port.aborted == [slow.request_id]
    assert BulkAttempt.objects.using(HOUSEKEEPER).filter(item_id=slow.id).count() == 1
    turn(ScriptedPipeline())
    assert check_totals(job_id).state == "finalizing"


def test_a_request_of_a_cancelled_job_is_aborted(acme: Tenant) -> None:
    job_id = plant(acme, "a")

    async def scenario() -> ScriptedPipeline:
        async def hang(_: BulkRequest) -> None:
            await port.in_database(cancel, job_id)
            await asyncio.Event().wait()

        port = ScriptedPipeline(on_start=hang)
        pump = pump_of(port, lease_s=1, turn_s=1)
        await pump.turn()
        return port

    port = asyncio.run(scenario())
    assert len(port.aborted) == 1
    assert states(job_id) == ["queued"]


def test_a_lease_is_renewed_while_its_request_runs(acme: Tenant) -> None:
    job_id = plant(acme, "a")

    async def scenario() -> None:
        async def last_longer_than_a_lease(_: BulkRequest) -> None:
            deadline = asyncio.get_running_loop().time() + 1.5
            while asyncio.get_running_loop().time() < deadline:
                assert await port.in_database(take) == []
                await asyncio.sleep(0.05)

        port = ScriptedPipeline(on_start=last_longer_than_a_lease)
        pump = pump_of(port, lease_s=1)
        await pump.turn()

    asyncio.run(scenario())
    assert states(job_id) == ["done"]


def test_a_worker_back_from_the_dead_changes_nothing(acme: Tenant) -> None:
    job_id = plant(acme, "a")

    async def scenario() -> ScriptedPipeline:
        async def outlive_the_lease(_: BulkRequest) -> None:
            def be_overtaken() -> None:
                lapse()
                (other,) = take()
                answer(other)

            await port.in_database(be_overtaken)

        port = ScriptedPipeline(on_start=outlive_the_lease)
        pump = pump_of(port, turn_s=0.3, stop_s=1)
        await pump.turn()
        await pump.drain()
        return port

    port = asyncio.run(scenario())
    (row,) = item_rows(job_id)
    assert (row.state, row.charge_pico) == ("answered", 0)
    assert list(port.charges.values()) == [0]


@pytest.mark.parametrize("connected", [False, True])
def test_nothing_is_claimed_without_an_engine(acme: Tenant, connected: bool) -> None:
    job_id = plant(acme, "a")
    port = ScriptedPipeline(engine=EngineLoad(connected, 0, 0, 0.0))
    assert turn(port) is False
    assert states(job_id) == ["done" if connected else "queued"]


def summary_job(tenant: Tenant, *names: str) -> UUID:
    job_id = plant(tenant, *names, kind="summary")
    plan(tenant, job_id)
    return job_id


def plan(tenant: Tenant, job_id: UUID) -> None:
    SummaryPlan.objects.using(HOUSEKEEPER).create(
        job_id=job_id,
        organization_id=tenant.organization_id,
        options={"model": "small"},
        input_file_ids=[],
    )


def line_text(name: str) -> str:
    from tests.batch_jobs.pump_cast import line_of

    return line_of(name).decode()


def cancel(job_id: UUID) -> None:
    BulkJob.objects.using(HOUSEKEEPER).filter(id=job_id).update(
        state="cancelling", cancelling_at="2026-01-01T00:00:00Z"
    )
