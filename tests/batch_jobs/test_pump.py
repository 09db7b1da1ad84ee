"""One turn of the pump, with a scripted pipeline behind the port and PostgreSQL in front."""

import dataclasses
from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest

from batch_jobs import leases
from batch_jobs.contracts import SummaryItem
from batch_jobs.facade import forfeit, read_items, read_job
from batch_jobs.models import SummaryItem as SummaryItemRow
from batch_jobs.ports import BatchCompletion, BatchCompletionResult
from batch_jobs.old_pump import PumpLimits, pump
from tenants.facade import tenant_scope
from tests.batch_jobs.cast import ScriptedPort, Tenant
from tests.house import wait_until

LIMITS = PumpLimits(
    items_max=8,
    lease_s=60,
    lease_renewals_max=10,
    attempts_max=3,
    retry_s=0,
    job_age_max_s=3600,
    summary_tokens_max=96,
)


def failure(code: str, *, retryable: bool = False, deferred: bool = False) -> BatchCompletionResult:
    """A scripted result; the port puts the request's own id in."""
    return BatchCompletionResult(uuid4(), 0, code, f"about {code}", retryable, deferred)


def read(tenant: Tenant, job_id: UUID) -> dict[str, SummaryItem]:
    return {item.custom_id: item for item in read_items(tenant.organization_id, job_id)}


def test_a_job_runs_to_its_end_and_adds_up(acme: Tenant) -> None:
    port = ScriptedPort()
    job_id = acme.submit("a", "b")
    assert read_job(acme.organization_id, job_id).state == "queued"
    assert pump(port, LIMITS) == 2
    assert pump(port, LIMITS) == 0

    job = read_job(acme.organization_id, job_id)
    assert (job.state, job.items_total, job.items_completed, job.items_failed) == (
        "completed",
        2,
        2,
        0,
    )
    assert job.charge_pico == 14
    assert job.completed_at is not None
    item = read(acme, job_id)["a"]
    assert (item.state, item.summary, item.charge_pico) == ("done", "summary of text of a", 7)
    assert (item.prompt_tokens, item.cached_tokens, item.completion_tokens) == (10, 4, 3)
    assert item.request_id in port.charges


def test_an_item_refused_for_what_it_is_fails_and_its_neighbour_does_not(acme: Tenant) -> None:
    port = ScriptedPort(results={"text of a": [failure("context_length_exceeded")]})
    job_id = acme.submit("a", "b")
    pump(port, LIMITS)

    items = read(acme, job_id)
    assert (items["a"].state, items["a"].error_code) == ("failed", "context_length_exceeded")
    assert items["a"].error_message == "about context_length_exceeded"
    assert items["b"].state == "done"
    job = read_job(acme.organization_id, job_id)
    assert (job.state, job.items_completed, job.items_failed, job.charge_pico) == (
        "completed",
        1,
        1,
        7,
    )


def test_a_failure_of_ours_is_tried_again_up_to_the_limit(acme: Tenant) -> None:
    port = ScriptedPort(
        results={
            "text of a": [failure("engine_failed", retryable=True)] * 2,
            "text of b": [failure("engine_failed", retryable=True)] * 3,
        }
    )
    job_id = acme.submit("a", "b")
    turns = [pump(port, LIMITS) for _ in range(4)]

    assert turns == [2, 2, 2, 0]
    items = read(acme, job_id)
    assert items["a"].state == "done"
    assert (items["b"].state, items["b"].error_code) == ("failed", "engine_failed")
    assert len({completion.request_id for completion in port.asked}) == 6


def test_what_never_reached_an_engine_is_tried_until_the_job_is_too_old(acme: Tenant) -> None:
    port = ScriptedPort(
        results={"text of a": [failure("overloaded", retryable=True, deferred=True)] * 9}
    )
    job_id = acme.submit("a")
    for _ in range(8):
        pump(port, LIMITS)
    assert read(acme, job_id)["a"].state == "queued"
    pump(port, dataclasses.replace(LIMITS, job_age_max_s=0))

    item = read(acme, job_id)["a"]
    assert (item.state, item.error_code) == ("failed", "overloaded")


def test_an_item_that_keeps_losing_its_workers_fails(acme: Tenant) -> None:
    job_id = acme.submit("a")
    for _ in range(LIMITS.attempts_max):
        leases.claim(1, lease_s=0)
    port = ScriptedPort()
    pump(port, LIMITS)

    assert read(acme, job_id)["a"].error_code == "attempts_exhausted"
    assert port.asked == []


def test_a_worker_that_died_after_storing_the_answer_costs_nothing_more(acme: Tenant) -> None:
    """Killed between the answer and the charge: whoever settles, the item is not computed again."""

    class Died(Exception):
        pass

    class DyingPort(ScriptedPort):
        def complete(self, completions, on_answer, on_result) -> None:  # type: ignore[no-untyped-def]
            def stored_then_died(_: BatchCompletionResult) -> None:
                raise Died

            super().complete(completions, on_answer, stored_then_died)

    port = DyingPort()
    job_id = acme.submit("a")
    with pytest.raises(Died):
        pump(port, dataclasses.replace(LIMITS, lease_s=0))
    charge_pico = port.charges.pop(port.asked[0].request_id)
    heir = ScriptedPort()
    assert pump(heir, dataclasses.replace(LIMITS, lease_s=0)) == 1
    assert read(acme, job_id)["a"].state == "answered", "its hold is still open"
    heir.charges[port.asked[0].request_id] = charge_pico
    pump(heir, LIMITS)

    item = read(acme, job_id)["a"]
    assert (item.state, item.charge_pico) == ("done", 7)
    assert heir.asked == []


def test_an_answer_that_comes_after_the_lease_passed_on_is_not_charged(acme: Tenant) -> None:
    def lose(completions: Sequence[BatchCompletion]) -> None:
        forfeit([completion.request_id for completion in completions])

    slow = ScriptedPort(on_start=lose)
    job_id = acme.submit("a")
    pump(slow, LIMITS)
    assert list(slow.charges.values()) == [0]
    assert read(acme, job_id)["a"].state == "queued"
    heir = ScriptedPort()
    pump(heir, LIMITS)

    assert read(acme, job_id)["a"].state == "done"
    assert list(heir.charges.values()) == [7]


def test_a_long_turn_keeps_its_leases(acme: Tenant) -> None:
    limits = dataclasses.replace(LIMITS, lease_s=1)

    def expiry() -> object:
        with tenant_scope(acme.organization_id):
            return SummaryItemRow.objects.get().lease_expires_at

    def outlive_the_lease(_: Sequence[BatchCompletion]) -> None:
        first = expiry()
        wait_until(lambda: expiry() != first)
        assert leases.claim(1, 60) == []

    job_id = acme.submit("a")
    pump(ScriptedPort(on_start=outlive_the_lease), limits)

    assert read(acme, job_id)["a"].state == "done"
