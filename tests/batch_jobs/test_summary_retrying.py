"""What failed is tried again, and what ended is forgotten: summarisation jobs after their end."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from batch_jobs.models import BulkItem, StoredFile
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
    fail_item,
    item_of,
    items_of,
    lease,
    make_summary_tenant,
    make_tree,
    set_job,
    states_of,
    tend_now,
    told_of,
)

CROWD = 50
ENDED = {"done", "failed", "cancelled", "expired"}


@pytest.fixture
def acme(django_database: object) -> Iterator[SummaryTenant]:
    """Whose jobs they are."""
    with selling(MODEL):
        yield make_summary_tenant("acme")


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


def texts_of(summary_id: str) -> set[str]:
    """The documents whose texts are still stored."""
    stored = StoredFile.objects.using("housekeeper").filter(purpose="staged", deleted_at=None)
    kept = set(stored.values_list("id", flat=True))
    return {
        one.custom_id for one in items_of(summary_id) if one.custom_id and one.source_id in kept
    }


def test_an_ended_job_keeps_the_texts_that_a_retry_would_need(acme: SummaryTenant) -> None:
    files = [acme.upload([document(name), {"id": f"bad {name}"}]) for name in "abc"]
    summary_id = acme.post(input_file_ids=files).json()["id"]
    tend_now()
    assert texts_of(summary_id) == {"a", "b", "c"}
    answer(summary_id, "a", "c")
    fail(summary_id, "b")
    tend_now()

    assert acme.read(summary_id)["status"] == "completed"
    assert texts_of(summary_id) == {"b"}
    acme.act("retry", summary_id)
    tend_now()
    answer(summary_id, "b")
    tend_now()
    assert acme.read(summary_id)["documents"]["completed"] == 3
    assert texts_of(summary_id) == set()


def test_a_job_that_never_ran_keeps_no_texts(acme: SummaryTenant) -> None:
    cancelled, expired = acme.ready("a"), acme.ready("b")
    acme.act("cancel", cancelled)
    set_job(expired, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    assert texts_of(cancelled) | texts_of(expired) == {"a", "b"}
    tend_now()
    tend_now()

    assert acme.read(cancelled)["status"] == "cancelled"
    assert acme.read(expired)["status"] == "expired"
    assert texts_of(cancelled) | texts_of(expired) == set()


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
