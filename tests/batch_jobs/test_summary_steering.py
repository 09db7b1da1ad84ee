"""Summarisation jobs from their making to their end, by the public door."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections
from django.test import override_settings

import batch_jobs.facade
import tenants.facade
from batch_jobs.contracts import BatchError, JobStateWrong
from batch_jobs.facade import SummaryOrder
from batch_jobs.invariants import INVARIANTS
from batch_jobs.models import BulkItem, StoredFile
from batch_jobs.pump.claiming import ClaimedItem
from batch_jobs.pump.transitions import Attempt, HeldBack, Returned, hold_back, return_items
from tests.batch_jobs.batch_cast import MODEL, selling
from tests.batch_jobs.summary_cast import (
    CHARGE_PICO,
    SUMMARIES,
    SummaryTenant,
    answer,
    answer_item,
    document,
    fail,
    fail_item,
    item_of,
    items_of,
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


def check_books(summary_id: str) -> None:
    """What must hold of any job."""
    job_id = job_of(summary_id).id
    with connections["housekeeper"].cursor() as cursor:
        for said, _, query in INVARIANTS:
            cursor.execute(query)
            assert [row for row in cursor.fetchall() if job_id in row] == [], said


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


@pytest.mark.parametrize(
    ("asked", "status", "param"),
    [
        ({"input_file_ids": []}, 400, "input_file_ids"),
        ({"input_file_ids": ["file-" + "0" * 32]}, 404, None),
        ({"model": "not-for-sale"}, 404, "model"),
        ({"length": "endless"}, 400, "length"),
        ({"tokens_max": 0}, 400, "tokens_max"),
        ({"language": "l" * 300}, 400, "language"),
        ({"schema": "no object"}, 400, "schema"),
        ({"budget": "0"}, 400, "budget"),
        ({"budget": "-1"}, 400, "budget"),
        ({"budget": 1.5}, 400, "budget"),
        ({"budget": "9" * 30}, 400, "budget"),
        ({"budget": "1.0000000000001"}, 400, "budget"),
        ({"deadline_at": "2020-01-01T00:00:00Z"}, 400, "deadline_at"),
        ({"deadline_at": "tomorrow"}, 400, "deadline_at"),
        ({"metadata": {str(n): "x" for n in range(17)}}, 400, "metadata"),
        ({"metadata": {"k": "x" * 513}}, 400, "metadata.k"),
        ({"priority": "high"}, 400, "priority"),
    ],
)
def test_what_makes_no_sense_makes_no_job(
    acme: SummaryTenant, asked: dict[str, Any], status: int, param: str | None
) -> None:
    answered = acme.post(**{"input_file_ids": [acme.upload([document("a")])], **asked})

    assert answered.status_code == status, answered.text
    assert answered.json()["error"]["param"] == param
    assert acme.door.get(SUMMARIES).json()["data"] == []


def test_a_file_of_others_is_no_input(acme: SummaryTenant, globex: SummaryTenant) -> None:
    foreign = globex.upload([document("a")])

    assert acme.post(input_file_ids=[foreign]).status_code == 404
    assert acme.post(input_file_ids=[acme.upload([document("a")])] * 2).status_code == 400


def test_one_key_makes_one_job(acme: SummaryTenant) -> None:
    body = {"model": MODEL, "input_file_ids": [acme.upload([document("a")])]}
    first, again = (
        acme.door.post(SUMMARIES, json=body, headers={"idempotency-key": "once"}) for _ in range(2)
    )

    assert first.status_code == again.status_code == 201
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["idempotent-replayed"] == "true"
    assert len(acme.door.get(SUMMARIES).json()["data"]) == 1


@override_settings(BATCH_JOBS_MAX=3)
def test_an_organization_has_so_many_unfinished_jobs(acme: SummaryTenant) -> None:
    order = SummaryOrder([_file_id(acme)], {"model": MODEL})

    def make() -> str:
        try:
            batch_jobs.facade.create_summary(acme.owner, order)
        except BatchError as error:
            return error.code
        return "made"

    outcomes = at_once([make] * 8)

    assert sorted(outcomes) == ["made"] * 3 + ["token_limit_exceeded"] * 5
    refused = acme.post(input_file_ids=[acme.upload([document("a")])])
    assert refused.status_code == 429


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


def test_what_failed_is_retried_and_what_is_done_is_kept(acme: SummaryTenant) -> None:
    summary_id = acme.running("a", "b", "c")
    answer(summary_id, "a")
    BulkItem.objects.using("housekeeper").filter(id=item_of(summary_id, "b").id).update(attempts=5)
    fail(summary_id, "b", "c")
    tend_now()
    completed = acme.read(summary_id)
    retried = acme.act("retry", summary_id)
    tend_now()
    running = acme.read(summary_id)
    again = item_of(summary_id, "b")

    assert completed["documents"]["failed"] == 2
    assert retried["status"] == "validating"
    assert retried["completed_at"] is None
    assert running["status"] == "in_progress"
    assert running["documents"] | {"failed": 0} == running["documents"]
    assert running["charge"] == completed["charge"]
    assert states_of(summary_id) == {"a": "done", "b": "queued", "c": "queued"}
    assert (again.attempts, again.error_code, again.ended_at) == (0, None, None)
    answer(summary_id, "b", "c")
    tend_now()
    assert acme.read(summary_id)["status"] == "completed"
    assert acme.read(summary_id)["documents"]["completed"] == 3
    assert told_of(summary_id) == ["summary.completed"] * 2
    check_books(summary_id)


def test_of_a_long_document_only_the_failed_part_is_retried(acme: SummaryTenant) -> None:
    summary_id = acme.running("long", "short")
    first, second, third = make_tree(summary_id, "long", 3)
    answer(summary_id, "short")
    answer_item(first, "the first part")
    fail_item(second)
    tend_now()
    assert states_of(summary_id)["long"] == "failed"
    acme.act("retry", summary_id)
    tend_now()
    states = {one.id: one.state for one in items_of(summary_id)}

    assert (states[first], states[second], states[third]) == ("done", "queued", "queued")
    assert item_of(summary_id, "long").state == "waiting"
    assert item_of(summary_id, "long").parts_left == 2
    answer_item(second, "the second part")
    answer_item(third, "the third part")
    assert states_of(summary_id)["long"] == "queued"
    answer(summary_id, "long")
    tend_now()
    (row,) = [row for row in acme.results(summary_id) if row["custom_id"] == "long"]
    assert acme.read(summary_id)["status"] == "completed"
    assert row["charge_pico"] == str(4 * CHARGE_PICO)
    check_books(summary_id)


def test_a_long_document_whose_merging_failed_is_only_merged_again(acme: SummaryTenant) -> None:
    summary_id = acme.running("long")
    parts = make_tree(summary_id, "long", 2)
    for part in parts:
        answer_item(part, "a part")
    fail(summary_id, "long")
    tend_now()
    acme.act("retry", summary_id)
    tend_now()

    assert states_of(summary_id) == {"long": "queued"}
    check_books(summary_id)


def test_documents_that_are_alike_are_retried_as_one(acme: SummaryTenant) -> None:
    same = [document("a", "one text"), document("b", "one text")]
    summary_id = acme.running(input_file_ids=[acme.upload(same)])
    fail(summary_id, "a")
    tend_now()
    assert states_of(summary_id) == {"a": "failed", "b": "failed"}
    acme.act("retry", summary_id)
    tend_now()

    assert states_of(summary_id) == {"a": "queued", "b": "waiting"}
    answer(summary_id, "a")
    tend_now()
    rows = acme.results(summary_id)
    assert acme.read(summary_id)["documents"]["completed"] == 2
    assert [row["summary"] for row in rows] == ["summary of a"] * 2
    assert [row["same_as"] for row in rows] == [None, "a"]
    assert [row["charge_pico"] for row in rows] == [str(CHARGE_PICO), "0"]
    check_books(summary_id)


def test_a_copy_whose_original_ended_after_the_cancelling_gets_its_summary(
    acme: SummaryTenant,
) -> None:
    same = [document("a", "one text"), document("b", "one text"), document("c")]
    summary_id = acme.running(input_file_ids=[acme.upload(same)])
    lease(item_of(summary_id, "a").id)
    acme.act("cancel", summary_id)
    tend_now()
    answer(summary_id, "a")
    tend_now()
    assert states_of(summary_id) == {"a": "done", "b": "cancelled", "c": "cancelled"}
    acme.act("retry", summary_id)
    tend_now()

    assert states_of(summary_id) == {"a": "done", "b": "done", "c": "queued"}
    assert acme.read(summary_id)["documents"]["completed"] == 2
    check_books(summary_id)


def test_a_document_that_cannot_be_read_is_not_retried(acme: SummaryTenant) -> None:
    documents = [document("a"), {"id": "empty", "text": " "}]
    summary_id = acme.running(input_file_ids=[acme.upload(documents)])
    fail(summary_id, "a")
    tend_now()
    acme.act("retry", summary_id)
    tend_now()

    assert states_of(summary_id) == {"a": "queued", "empty": "failed"}
    assert acme.read(summary_id)["documents"]["failed"] == 1
    answer(summary_id, "a")
    tend_now()
    acme.act("retry", summary_id)
    tend_now()
    tend_now()
    assert acme.read(summary_id)["status"] == "completed"
    check_books(summary_id)


def test_a_job_without_failures_is_not_retried(acme: SummaryTenant) -> None:
    summary_id = acme.running("a")
    answer(summary_id, "a")
    tend_now()

    assert acme.try_to("retry", summary_id).status_code == 409
    assert acme.read(summary_id)["status"] == "completed"


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


def test_deleting_results_leaves_the_totals(acme: SummaryTenant) -> None:
    summary_id = acme.running("a", "b")
    early = acme.door.delete(f"{SUMMARIES}/{summary_id}")
    answer(summary_id, "a")
    fail(summary_id, "b")
    tend_now()
    shards = {one.source_id for one in items_of(summary_id) if one.source_id}
    deleted = acme.door.delete(f"{SUMMARIES}/{summary_id}")
    at_once_gone = acme.door.get(f"{SUMMARIES}/{summary_id}/results")
    tend_now()
    after = acme.read(summary_id)

    assert early.status_code == 409
    assert deleted.status_code == 200
    assert at_once_gone.status_code == 404
    assert items_of(summary_id) == []
    staged = StoredFile.objects.using("housekeeper").filter(id__in=shards)
    assert [one.deleted_at is not None for one in staged] == [True]
    assert after["documents"]["completed"] == after["documents"]["failed"] == 1
    assert after["charge"]["amount_pico"] == str(CHARGE_PICO)
    assert after["results_deleted_at"] is not None
    assert after["results_shards"] == 0
    for verb in ("retry", "start", "cancel"):
        assert acme.try_to(verb, summary_id).status_code == 404
    check_books(summary_id)


def test_results_go_when_they_were_kept_for_long_enough(acme: SummaryTenant) -> None:
    old, recent = acme.running("a"), acme.running("b")
    answer(old, "a")
    answer(recent, "b")
    tend_now()
    set_job(old, completed_at=datetime.now(UTC) - timedelta(days=31))
    tend_now()

    assert items_of(old) == []
    assert acme.read(old)["results_deleted_at"] is not None
    assert len(acme.results(recent)) == 1


def test_a_job_whose_time_is_over_expires(acme: SummaryTenant) -> None:
    summary_id = acme.running("a", "b")
    answer(summary_id, "a")
    set_job(summary_id, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    tend_now()
    tend_now()
    expired = acme.read(summary_id)

    assert expired["status"] == "expired"
    assert states_of(summary_id) == {"a": "done", "b": "expired"}
    assert told_of(summary_id) == ["summary.expired"]
    acme.act("retry", summary_id)
    tend_now()
    assert acme.read(summary_id)["status"] == "in_progress"
    check_books(summary_id)


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


def test_jobs_are_listed_newest_first_for_their_project_alone(
    acme: SummaryTenant, globex: SummaryTenant
) -> None:
    made = [acme.create("a") for _ in range(3)]
    first = acme.door.get(f"{SUMMARIES}?limit=2").json()
    rest = acme.door.get(f"{SUMMARIES}?limit=2&after={first['last_id']}").json()

    assert [one["id"] for one in first["data"]] == [made[2], made[1]]
    assert first["has_more"] is True
    assert [one["id"] for one in rest["data"]] == [made[0]]
    assert globex.door.get(SUMMARIES).json()["data"] == []
    assert globex.door.get(f"{SUMMARIES}/{made[0]}").status_code == 404


def _file_id(tenant: SummaryTenant) -> Any:
    from uuid import UUID

    return UUID(tenant.upload([document("a")]).removeprefix("file-"))


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
