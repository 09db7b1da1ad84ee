"""What the owner of a summarisation job does with it while it lives, by the public door."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections

import batch_jobs.facade
import tenants.facade
from batch_jobs.contracts import JobStateWrong
from batch_jobs.pump.claiming import ClaimedItem
from batch_jobs.pump.transitions import Attempt, HeldBack, Returned, hold_back, return_items
from tests.batch_jobs.batch_cast import MODEL, selling
from tests.batch_jobs.summary_cast import (
    CHARGE_PICO,
    SUMMARIES,
    SummaryTenant,
    answer,
    answer_item,
    check_books,
    document,
    fail,
    item_of,
    job_of,
    lease,
    make_summary_tenant,
    make_tree,
    set_job,
    states_of,
    take,
    tend_now,
    told_of,
)
from tests.billing.cast import at_once
from tests.headrace.door import Door

CROWD = 50
ENDED = {"done", "failed", "cancelled", "expired"}


@pytest.fixture
def acme(django_database: object) -> Iterator[SummaryTenant]:
    """Whose jobs they are."""
    with selling(MODEL):
        yield make_summary_tenant("acme")


@pytest.fixture
def globex(acme: SummaryTenant) -> SummaryTenant:
    """Who must see nothing of them."""
    return make_summary_tenant("globex")


def test_a_job_is_read_run_and_completed(acme: SummaryTenant) -> None:
    file_id = acme.upload([document("a"), document("b")])
    made = acme.post(input_file_ids=[file_id], metadata={"night": "monday"}, length="medium").json()
    tend_now()
    running = acme.read(made["id"])
    answer(made["id"], "a")
    fail(made["id"], "b")
    finalizing = acme.read(made["id"])
    tend_now()
    completed = acme.read(made["id"])

    assert made["object"] == "summary.job"
    assert made["status"] == "validating"
    assert made["estimate"] is None
    assert made["input_file_ids"] == [file_id]
    assert made["metadata"] == {"night": "monday"}
    assert made["options"]["length"] == "medium"
    assert running["status"] == "in_progress"
    assert running["documents"]["total"] == 2
    assert running["estimate"]["amount_pico"].isdecimal()
    assert finalizing["status"] == "finalizing"
    assert completed["status"] == "completed"
    assert completed["documents"]["completed"] == completed["documents"]["failed"] == 1
    assert completed["charge"] == {"amount_pico": "7", "amount": "0.000000000007"}
    assert completed["currency"] == "USD"
    assert completed["completed_at"] > completed["created_at"]
    assert told_of(made["id"]) == ["summary.completed"]
    check_books(made["id"])


def test_a_ready_job_waits_until_it_is_started(acme: SummaryTenant) -> None:
    summary_id = acme.ready("a")
    tend_now()
    waiting = acme.read(summary_id)
    started = acme.act("start", summary_id)

    assert waiting["status"] == "ready"
    assert waiting["in_progress_at"] is None
    assert waiting["estimate"]["prompt_tokens"] > 0
    assert started["status"] == "in_progress"
    assert started["in_progress_at"] is not None


def test_a_preview_runs_three_documents_and_is_ready_again(acme: SummaryTenant) -> None:
    summary_id = acme.ready(*"abcdef")
    previewing = acme.act("preview", summary_id)
    claimed = claim(summary_id)
    answer(summary_id, *filter(None, claimed))
    tend_now()
    ready = acme.read(summary_id)

    assert previewing["status"] == "in_progress"
    assert previewing["previewing"] is True
    assert len(claimed) == 3
    assert ready["status"] == "ready"
    assert ready["previewing"] is False
    assert ready["documents"]["completed"] == 3
    assert len(acme.results(summary_id)) == 3
    assert acme.act("start", summary_id)["status"] == "in_progress"
    assert len(claim(summary_id)) == 3


def test_a_preview_waits_for_what_is_under_way_and_repeats_what_came_back(
    acme: SummaryTenant,
) -> None:
    summary_id = acme.ready(*"abcdef")
    acme.act("preview", summary_id)
    first, second, third = take()
    end(first)
    tend_now()
    while_leased = acme.read(summary_id)["status"]
    return_items([Returned(second, Attempt.FAILED), Returned(third, Attempt.NOT_MADE)])
    tend_now()
    again = take()
    end(*again)
    tend_now()

    assert while_leased == "in_progress"
    assert len(again) == 2
    assert acme.read(summary_id)["status"] == "ready"
    assert acme.read(summary_id)["documents"]["completed"] == 3


def test_a_preview_of_a_small_job_completes_it(acme: SummaryTenant) -> None:
    summary_id = acme.ready("a", "b")
    acme.act("preview", summary_id)
    answer(summary_id, *filter(None, claim(summary_id)))
    tend_now()

    assert acme.read(summary_id)["status"] == "completed"


def test_a_preview_takes_whole_documents(acme: SummaryTenant) -> None:
    summary_id = acme.ready("long", "short")
    make_tree(summary_id, "long", 5)
    acme.act("preview", summary_id)

    assert claim(summary_id) == ["short"]


def test_a_job_of_long_documents_has_no_preview(acme: SummaryTenant) -> None:
    summary_id = acme.ready("long")
    make_tree(summary_id, "long", 5)
    refused = acme.try_to("preview", summary_id)

    assert refused.status_code == 409
    assert acme.read(summary_id)["status"] == "ready"


def test_a_job_may_be_started_while_its_preview_runs(acme: SummaryTenant) -> None:
    summary_id = acme.ready(*"abcdef")
    acme.act("preview", summary_id)
    started = acme.act("start", summary_id)

    assert started["previewing"] is False
    assert len(claim(summary_id)) == 6


def test_a_paused_job_gives_out_nothing_until_it_is_resumed(acme: SummaryTenant) -> None:
    summary_id = acme.running("a", "b")
    lease(item_of(summary_id, "a").id)
    paused = acme.act("pause", summary_id)
    answer(summary_id, "a")

    assert (paused["status"], paused["pause_reason"]) == ("paused", "owner")
    assert paused["progress"]["remaining_s"] is None
    assert claim(summary_id) == []
    assert acme.read(summary_id)["documents"]["completed"] == 1
    resumed = acme.act("resume", summary_id)
    assert (resumed["status"], resumed["pause_reason"]) == ("in_progress", None)
    assert claim(summary_id) == ["b"]


def test_a_job_whose_last_document_ended_while_it_was_paused_ends_when_resumed(
    acme: SummaryTenant,
) -> None:
    summary_id = acme.running("a")
    lease(item_of(summary_id, "a").id)
    acme.act("pause", summary_id)
    answer(summary_id, "a")
    acme.act("resume", summary_id)
    tend_now()

    assert acme.read(summary_id)["status"] == "completed"


def test_a_cancelled_job_keeps_what_is_done(acme: SummaryTenant) -> None:
    summary_id = acme.running("a", "b", "c")
    answer(summary_id, "a")
    fail(summary_id, "b")
    cancelling = acme.act("cancel", summary_id)
    tend_now()
    tend_now()
    cancelled = acme.read(summary_id)

    assert cancelling["status"] == "cancelling"
    assert cancelled["status"] == "cancelled"
    assert states_of(summary_id) == {"a": "done", "b": "failed", "c": "cancelled"}
    assert cancelled["charge"]["amount_pico"] == str(CHARGE_PICO)
    assert [row["status"] for row in acme.results(summary_id)] == ["done", "failed", "cancelled"]
    assert told_of(summary_id) == ["summary.cancelled"]
    check_books(summary_id)


@pytest.mark.parametrize("start", [True, False])
def test_a_job_can_be_cancelled_before_it_runs(acme: SummaryTenant, start: bool) -> None:
    summary_id = acme.create("a", start=start)
    acme.act("cancel", summary_id)
    tend_now()
    tend_now()

    assert acme.read(summary_id)["status"] == "cancelled"


def test_a_higher_budget_resumes_a_job_that_used_up_its_own(acme: SummaryTenant) -> None:
    summary_id = acme.running("a", "b", budget="0.000000000007")
    answer(summary_id, "a")
    take()
    refused = acme.try_to("resume", summary_id)
    lower = change(acme, summary_id, budget="0.000000000005")
    higher = change(acme, summary_id, budget="1")

    assert refused.status_code == 409
    assert "budget" in refused.json()["error"]["message"]
    assert (lower["status"], lower["pause_reason"]) == ("paused", "budget")
    assert (higher["status"], higher["pause_reason"]) == ("in_progress", None)
    assert higher["budget"] == "1.00"
    assert change(acme, summary_id, budget=None)["budget"] is None


def test_a_job_that_is_paused_for_its_owner_says_so_once(acme: SummaryTenant) -> None:
    summary_id = acme.running("a")
    job = job_of(summary_id)
    held_back = HeldBack(job.id, job.organization_id, 0, "balance")
    hold_back([held_back])
    tend_now()
    tend_now()
    told_first = told_of(summary_id)
    acme.act("resume", summary_id)
    acme.act("pause", summary_id)
    tend_now()
    told_by_owner = told_of(summary_id)
    acme.act("resume", summary_id)
    hold_back([held_back])
    tend_now()

    assert acme.read(summary_id)["pause_reason"] == "balance"
    assert told_first == told_by_owner == ["summary.paused"]
    assert told_of(summary_id) == ["summary.paused"] * 2


def test_who_resumes_a_job_runs_it(acme: SummaryTenant) -> None:
    summary_id = acme.running("a")
    owner = acme.owner
    other = tenants.facade.issue_key(
        owner.organization_id, owner.project_id, "other", using="housekeeper"
    )
    acme.act("pause", summary_id)
    Door(other.secret).post(f"{SUMMARIES}/{summary_id}/resume")

    assert [item.key_id for item in take()] == [other.key_id]


def test_a_higher_budget_does_not_resume_what_its_owner_paused(acme: SummaryTenant) -> None:
    summary_id = acme.running("a", budget="1")
    acme.act("pause", summary_id)

    assert change(acme, summary_id, budget="2")["status"] == "paused"


def test_another_deadline_is_taken_while_the_job_is_unfinished(acme: SummaryTenant) -> None:
    summary_id = acme.running("a")
    later = datetime.now(UTC) + timedelta(hours=8)
    changed = change(acme, summary_id, deadline_at=later.isoformat())
    answer(summary_id, "a")
    tend_now()

    assert datetime.fromisoformat(changed["deadline_at"]) == later
    refused = acme.door.patch(f"{SUMMARIES}/{summary_id}", json={"deadline_at": None})
    assert refused.status_code == 409


def test_a_deadline_in_danger_is_told_once(acme: SummaryTenant) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    summary_id = acme.running("a", "b", deadline_at=soon.isoformat())
    tend_now()
    assert told_of(summary_id) == []
    set_job(summary_id, deadline_at=datetime.now(UTC) - timedelta(seconds=1))
    tend_now()
    tend_now()
    assert told_of(summary_id) == ["summary.deadline_at_risk"]
    change(acme, summary_id, deadline_at=soon.isoformat())
    tend_now()
    assert told_of(summary_id) == ["summary.deadline_at_risk"]
    slow_for_a_minute(summary_id)
    tend_now()
    assert told_of(summary_id) == ["summary.deadline_at_risk"] * 2


@pytest.mark.parametrize("verb", ["start", "preview", "pause", "resume", "cancel", "retry"])
def test_of_fifty_that_steer_at_once_one_wins(acme: SummaryTenant, verb: str) -> None:
    summary_id = acme.ready(*"abcde")
    if verb in ("pause", "resume"):
        acme.act("start", summary_id)
    if verb == "resume":
        acme.act("pause", summary_id)
    if verb == "retry":
        acme.act("start", summary_id)
        fail(summary_id, *"abcde")
        tend_now()
    steer = getattr(batch_jobs.facade, f"{verb}_summary")
    job_id = job_of(summary_id).id

    def try_it() -> str:
        try:
            return str(steer(acme.owner, job_id).job.state)
        except JobStateWrong as error:
            return error.code

    outcomes = at_once([try_it] * CROWD)

    assert outcomes.count("invalid_state") == CROWD - 1
    assert {*outcomes} - {"invalid_state"} == {job_of(summary_id).state}


def test_whatever_is_asked_at_once_leaves_a_job_that_holds_together(acme: SummaryTenant) -> None:
    summary_id = acme.ready(*"abcde")
    acme.act("start", summary_id)
    fail(summary_id, *"abcde")
    tend_now()
    job_id = job_of(summary_id).id
    verbs = ("retry", "cancel", "pause", "resume", "start")

    def try_to(verb: str) -> None:
        try:
            getattr(batch_jobs.facade, f"{verb}_summary")(acme.owner, job_id)
        except JobStateWrong:
            return

    at_once([lambda verb=verb: try_to(verb) for verb in verbs * 6])  # type: ignore[misc]
    for _ in range(4):
        tend_now()

    assert acme.read(summary_id)["status"] in ("in_progress", "paused", "cancelled")
    check_books(summary_id)


def change(tenant: SummaryTenant, summary_id: str, **changes: Any) -> dict[str, Any]:
    """The job with other bounds."""
    answered = tenant.door.patch(f"{SUMMARIES}/{summary_id}", json=changes)
    assert answered.status_code == 200, answered.text
    shown: dict[str, Any] = answered.json()
    return shown


def claim(summary_id: str) -> list[str | None]:
    """The documents of the job that a pump gets."""
    return [item.custom_id for item in take() if item.job_id == job_of(summary_id).id]


def end(*items: ClaimedItem) -> None:
    """They are summarised."""
    for item in items:
        answer_item(item.item_id, "a summary")


def slow_for_a_minute(summary_id: str) -> None:
    """A minute in which one document of very many was done."""
    now = datetime.now(UTC)
    set_job(summary_id, in_progress_at=now - timedelta(seconds=90), items_total=1_000_000)
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO bulk_progress (organization_id, job_id, bucket_at, items, prompt_tokens,"
            " completion_tokens, charge_pico) VALUES (%s, %s, %s, 1, 10, 3, 7)",
            [job_of(summary_id).organization_id, job_of(summary_id).id, now],
        )
