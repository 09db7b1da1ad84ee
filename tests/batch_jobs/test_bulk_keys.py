"""Nothing is read for a key that may not go on; what ends a job goes on whatever its key."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import connections
from django.test import override_settings

import batch_jobs.facade
import tenants.facade
from batch_jobs.batches import validating
from batch_jobs.contracts import Owner
from batch_jobs.ports import ModelTerms
from batch_jobs.summaries import staging
from batch_jobs.tending import tend
from tenants.contracts import OrganizationStatus
from tests.batch_jobs import batch_cast, summary_cast
from tests.batch_jobs.batch_cast import (
    MODEL,
    BatchTenant,
    Market,
    jsonl,
    line,
    make_batch_tenant,
    selling,
)
from tests.batch_jobs.summary_cast import (
    SUMMARIES,
    SummaryTenant,
    answer,
    fail,
    job_of,
    make_summary_tenant,
    set_job,
    states_of,
    tend_now,
    told_of,
)
from tests.headrace.door import Door


@pytest.fixture
def market(queue: None) -> Iterator[Market]:
    """Where they run."""
    with selling(MODEL) as market:
        yield market


@pytest.fixture
def buyer(market: Market) -> BatchTenant:
    """Whose batches they are."""
    return make_batch_tenant("acme")


@pytest.fixture
def team(market: Market) -> SummaryTenant:
    """Whose summarisation jobs they are."""
    return make_summary_tenant("acme")


def revoke(owner: Owner) -> None:
    tenants.facade.revoke_key(owner.organization_id, owner.key_id)


def expire(owner: Owner) -> None:
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "UPDATE tenants_api_key SET expires_at = now() WHERE id = %s", [owner.key_id]
        )


def archive(owner: Owner) -> None:
    tenants.facade.archive_project(owner.organization_id, owner.project_id)


def suspend(owner: Owner) -> None:
    tenants.facade.set_organization_status(owner.organization_id, OrganizationStatus.SUSPENDED)


def close(owner: Owner) -> None:
    tenants.facade.set_organization_status(owner.organization_id, OrganizationStatus.CLOSED)


def another_key(owner: Owner) -> str:
    """The secret of another one of the project's."""
    issued = tenants.facade.issue_key(
        owner.organization_id, owner.project_id, "other", using="housekeeper"
    )
    return issued.secret


ENDS = [
    (revoke, "key_revoked"),
    (expire, "key_revoked"),
    (archive, "project_archived"),
    (suspend, "organization_suspended"),
    (close, "organization_suspended"),
]
IDS = ["revoked", "expired", "archived", "suspended", "closed"]


@pytest.mark.parametrize(("end", "code"), ENDS, ids=IDS)
def test_a_batch_is_not_read_for_a_key_that_may_not_go_on(
    buyer: BatchTenant, end: Callable[[Owner], None], code: str
) -> None:
    batch_id = buyer.create(jsonl(map(line, "ab")))
    end(buyer.owner)

    tend(datetime.now(UTC))

    batch = batch_jobs.facade.read_batch(buyer.owner, batch_cast.job_of(batch_id).id)
    assert batch.state == "failed"
    [error] = batch.errors
    assert (error.code, error.line) == (code, None)
    assert batch_cast.items_of(batch_id) == []
    assert [kind for kind, _ in batch_cast.told_of(batch_id)] == ["batch.failed"]


def test_a_batch_s_owner_reads_that_its_key_was_revoked(buyer: BatchTenant) -> None:
    batch_id = buyer.create(jsonl([line("a")]))
    revoke(buyer.owner)
    tend(datetime.now(UTC))

    batch = Door(another_key(buyer.owner)).get(f"/v1/batches/{batch_id}").json()

    assert batch["status"] == "failed"
    [error] = batch["errors"]["data"]
    assert error == {
        "code": "key_revoked",
        "message": "The API key of this job was revoked or has expired.",
        "param": None,
        "line": None,
    }


def test_reading_ends_with_the_list_in_which_the_key_was_revoked(
    buyer: BatchTenant, market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validating, "LIST_LINES", 2)
    sells = market.terms

    def revoking(organization_id: UUID, project_id: UUID, model: str) -> ModelTerms | None:
        revoke(buyer.owner)
        return sells(organization_id, project_id, model)

    monkeypatch.setattr(market, "terms", revoking)
    batch_id = buyer.create(jsonl([line("a"), line("b")]) + b"{not read\n")

    tend(datetime.now(UTC))

    job = batch_cast.job_of(batch_id)
    assert (job.state, [one["code"] for one in job.errors]) == ("failed", ["key_revoked"])


@pytest.mark.parametrize("end", [one for one, _ in ENDS], ids=IDS)
def test_a_batch_that_ended_is_written_whatever_its_key(
    buyer: BatchTenant, end: Callable[[Owner], None]
) -> None:
    done, cancelled = buyer.running("a"), buyer.running("b")
    batch_cast.answer(done, "a")
    buyer.cancel(cancelled)
    end(buyer.owner)

    tend(datetime.now(UTC))

    assert batch_cast.job_of(done).state == "completed"
    assert batch_cast.job_of(done).output_file_id is not None
    assert batch_cast.job_of(cancelled).state == "cancelled"


@pytest.mark.parametrize("end", [one for one, _ in ENDS], ids=IDS)
def test_a_summarisation_is_paused_before_it_is_read_for_such_a_key(
    team: SummaryTenant, end: Callable[[Owner], None]
) -> None:
    summary_id = team.create("a", "b")
    end(team.owner)

    tend_now()
    tend_now()

    job = job_of(summary_id)
    assert (job.state, job.pause_reason, job.items_total) == ("paused", "key", 0)
    assert states_of(summary_id) == {}
    assert told_of(summary_id) == ["summary.paused"]


def test_a_job_paused_in_the_midst_of_reading_is_read_on_for_who_resumes_it(
    team: SummaryTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary_id = team.create(*"abcde")
    stage = staging.stage_texts

    def revoking(*args: Any) -> Any:
        revoke(team.owner)
        return stage(*args)

    monkeypatch.setattr(staging, "stage_texts", revoking)
    with override_settings(SUMMARY_PAGE_DOCUMENTS=2, SUMMARY_READ_S=0):
        tend_now()
    monkeypatch.undo()
    begun, paused = sorted(states_of(summary_id)), job_of(summary_id)
    tend_now()
    door = Door(another_key(team.owner))
    resumed = door.post(f"{SUMMARIES}/{summary_id}/resume").json()
    tend_now()

    assert begun == ["a", "b"]
    assert (paused.state, paused.pause_reason) == ("paused", "key")
    assert (resumed["status"], resumed["pause_reason"]) == ("validating", None)
    running = job_of(summary_id)
    assert (running.state, running.items_total) == ("in_progress", 5)
    assert states_of(summary_id) == dict.fromkeys("abcde", "queued")
    assert running.key_id != team.owner.key_id
    assert told_of(summary_id) == ["summary.paused"]
    summary_cast.check_books(summary_id)


def test_a_retry_waits_for_a_key_too_and_keeps_what_is_done(team: SummaryTenant) -> None:
    summary_id = team.running("a", "b")
    answer(summary_id, "a")
    fail(summary_id, "b")
    tend_now()
    team.act("retry", summary_id)
    revoke(team.owner)
    tend_now()
    paused = job_of(summary_id)
    Door(another_key(team.owner)).post(f"{SUMMARIES}/{summary_id}/resume")
    tend_now()

    assert (paused.state, paused.pause_reason) == ("paused", "key")
    assert job_of(summary_id).state == "in_progress"
    assert states_of(summary_id) == {"a": "done", "b": "queued"}
    summary_cast.check_books(summary_id)


def test_a_job_that_waits_for_a_key_before_it_is_read_can_be_cancelled(
    team: SummaryTenant,
) -> None:
    summary_id = team.create("a")
    revoke(team.owner)
    tend_now()
    cancelling = Door(another_key(team.owner)).post(f"{SUMMARIES}/{summary_id}/cancel").json()
    tend_now()
    tend_now()

    assert cancelling["status"] == "cancelling"
    assert job_of(summary_id).state == "cancelled"


def test_a_job_whose_input_is_wrong_fails_whatever_its_key(team: SummaryTenant) -> None:
    summary_id = team.create("a")
    wrong = {"code": "unreadable_input", "message": "no", "line": None, "param": None}
    set_job(summary_id, cursor={"errors": [wrong]})
    revoke(team.owner)
    tend_now()

    assert job_of(summary_id).state == "failed"
    assert job_of(summary_id).errors == [wrong]
