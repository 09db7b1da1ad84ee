"""However a batch ends, each of its lines is once in one of its files, and what is done is paid."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections
from django.test import override_settings

from batch_jobs import ending, facade, job_leases
from batch_jobs.batches import output
from batch_jobs.batches.forgetting import forget_lines
from batch_jobs.files.sweeping import sweep_files
from batch_jobs.job_files import stage_file
from batch_jobs.tending import tend
from tenants.contracts import Permission
from tenants.events.mail import render
from tenants.facade import event_kinds
from tests.batch_jobs.batch_cast import (
    MODEL,
    BatchTenant,
    Market,
    answer,
    items_of,
    job_of,
    let_leases_run,
    make_batch_tenant,
    refuse,
    selling,
    settle,
    store,
    take_line,
    tended,
    told_of,
)
from tests.batch_jobs.scripted_pipeline import CHARGE_PICO, outcome, turn
from tests.billing.cast import at_once
from tests.house import wait_until

DAY = timedelta(days=1)


@pytest.fixture
def market(django_database: object) -> Iterator[Market]:
    """Where their lines run."""
    with selling(MODEL) as market:
        yield market


@pytest.fixture
def acme(market: Market) -> BatchTenant:
    """Whose batches they are."""
    return make_batch_tenant("acme")


def test_a_batch_that_is_done_has_its_answers_in_one_file(acme: BatchTenant) -> None:
    batch_id = acme.running("a", "b")
    answer(batch_id, "b")
    answer(batch_id, "a")
    assert acme.read(batch_id)["status"] == "finalizing"

    tended()

    batch = acme.read(batch_id)
    assert (batch["status"], batch["error_file_id"]) == ("completed", None)
    assert batch["request_counts"] == {"total": 2, "completed": 2, "failed": 0}
    assert batch["usage"] == {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 8},
        "output_tokens": 6,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 26,
    }
    for name in ("created_at", "in_progress_at", "finalizing_at", "completed_at", "expires_at"):
        assert isinstance(batch[name], int)
    for name in ("failed_at", "expired_at", "cancelling_at", "cancelled_at"):
        assert batch[name] is None
    output, _ = acme.lines_of(batch_id)
    request_id = items_of(batch_id)[0].request_id
    assert request_id is not None
    assert output["a"] == {
        "id": f"batch_req_{request_id.hex}",
        "custom_id": "a",
        "response": {
            "status_code": 200,
            "request_id": request_id.hex,
            "body": {"object": "chat.completion", "about": "a"},
        },
        "error": None,
    }
    [(kind, told)] = told_of(batch_id)
    assert kind == "batch.completed"
    assert told["request_counts"] == {"total": 2, "completed": 2, "failed": 0}
    assert told["charge_pico"] == str(2 * CHARGE_PICO)


def test_one_line_that_is_refused_spoils_nothing_of_the_others(acme: BatchTenant) -> None:
    batch_id = acme.running("good", "bad")
    refuse(batch_id, "bad")
    answer(batch_id, "good")

    tended()

    batch = acme.read(batch_id)
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": 2, "completed": 1, "failed": 1}
    output, errors = acme.lines_of(batch_id)
    assert list(output) == ["good"]
    assert errors["bad"]["error"] is None
    assert errors["bad"]["response"]["status_code"] == 400
    assert errors["bad"]["response"]["body"] == {
        "error": {
            "message": "not that one",
            "type": "invalid_request_error",
            "param": None,
            "code": "unsupported_parameter",
        }
    }
    assert job_of(batch_id).charge_pico == CHARGE_PICO


def test_a_batch_whose_lines_all_fail_is_completed(acme: BatchTenant) -> None:
    batch_id = acme.running("a", "b")
    refuse(batch_id, "a")
    refuse(batch_id, "b", status_code=0)

    tended()

    batch = acme.read(batch_id)
    assert (batch["status"], batch["output_file_id"]) == ("completed", None)
    _, errors = acme.lines_of(batch_id)
    assert errors["b"]["response"] is None
    assert errors["b"]["error"] == {"code": "unsupported_parameter", "message": "not that one"}


def test_a_cancelled_batch_s_done_lines_are_paid_and_can_be_had(acme: BatchTenant) -> None:
    batch_id = acme.running("done", "refused", "running", "waiting")
    answer(batch_id, "done")
    refuse(batch_id, "refused")
    running = take_line(batch_id, "running")

    assert acme.cancel(batch_id)["status"] == "cancelling"
    tended()
    assert acme.read(batch_id)["status"] == "cancelling", "one line still runs"
    store(running)
    settle(running)
    tended(3)

    batch = acme.read(batch_id)
    assert batch["status"] == "cancelled"
    assert isinstance(batch["cancelled_at"], int)
    assert batch["request_counts"] == {"total": 4, "completed": 2, "failed": 1}
    output, errors = acme.lines_of(batch_id)
    assert output.keys() == {"done", "running"}
    assert errors.keys() == {"refused", "waiting"}
    assert errors["waiting"]["response"] is None
    assert errors["waiting"]["error"]["code"] == "batch_cancelled"
    assert job_of(batch_id).charge_pico == 2 * CHARGE_PICO
    assert [kind for kind, _ in told_of(batch_id)] == ["batch.cancelled"]


def test_an_expired_batch_s_done_lines_are_in_its_output(acme: BatchTenant) -> None:
    batch_id = acme.running("done", "waiting")
    answer(batch_id, "done")

    tend(datetime.now(UTC) + DAY - timedelta(minutes=1))
    assert acme.read(batch_id)["status"] == "in_progress"
    tend(datetime.now(UTC) + DAY)

    batch = acme.read(batch_id)
    assert batch["status"] == "expired"
    assert isinstance(batch["expired_at"], int)
    output, errors = acme.lines_of(batch_id)
    assert list(output) == ["done"]
    assert errors["waiting"]["error"]["code"] == "batch_expired"
    assert job_of(batch_id).charge_pico == CHARGE_PICO
    assert [kind for kind, _ in told_of(batch_id)] == ["batch.expired"]


def test_the_lines_of_a_large_batch_are_ended_in_steps(
    acme: BatchTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id = acme.running("a", "b", "c")
    acme.cancel(batch_id)
    monkeypatch.setattr(ending, "PAGE_ITEMS", 1)
    job = job_leases.lease_job(datetime.now(UTC), 60)
    assert job is not None

    with override_settings(BATCH_TEND_S=0):
        assert not ending.cancel(job, datetime.now(UTC))
        assert [item.state for item in items_of(batch_id)] == ["cancelled", "queued", "queued"]
        assert not ending.cancel(job, datetime.now(UTC))
    assert ending.cancel(job, datetime.now(UTC))

    assert [item.state for item in items_of(batch_id)] == ["cancelled"] * 3


@pytest.mark.parametrize("end", ["cancelled", "expired"])
def test_what_still_runs_after_the_grace_is_taken_away(acme: BatchTenant, end: str) -> None:
    batch_id = acme.running("running", "stored", "dead")
    _, stored, _ = [take_line(batch_id, name) for name in ("running", "stored", "dead")]
    store(stored)
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "UPDATE bulk_item SET lease_expires_at = now() - interval '1 s'"
            " WHERE custom_id = 'dead'"
        )
    if end == "cancelled":
        acme.cancel(batch_id)
    else:
        with connections["housekeeper"].cursor() as cursor:
            cursor.execute("UPDATE bulk_job SET expires_at = now()")

    tended(1)
    states = {item.custom_id: item.state for item in items_of(batch_id)}
    assert states == {"running": "leased", "stored": "answered", "dead": end}
    tended(700)
    states = {item.custom_id: item.state for item in items_of(batch_id)}
    assert states == {"running": end, "stored": "answered", "dead": end}
    assert acme.read(batch_id)["status"] in ("cancelling", "finalizing"), "its charge is to come"

    settle(stored)
    tended(710)

    assert acme.read(batch_id)["status"] == end
    output, errors = acme.lines_of(batch_id)
    assert output.keys() == {"stored"}
    assert errors.keys() == {"running", "dead"}


@pytest.mark.parametrize("status_code", [401, 403, 503], ids=["key", "project", "engine"])
def test_lines_that_cannot_run_wait_and_expire_with_their_batch(
    market: Market, acme: BatchTenant, status_code: int
) -> None:
    """Of a key that was revoked, a project archived, an organization suspended in the middle."""
    batch_id = acme.running("a", "b")
    for name in ("a", "b"):
        refused = outcome("refused", status_code, deferred=True, job_wide=True)
        market.outcomes[f"text of {name}"] = [refused]

    turn(market)
    tended()
    assert acme.read(batch_id)["status"] == "in_progress"
    assert {item.state for item in items_of(batch_id)} == {"queued"}
    tend(datetime.now(UTC) + DAY)

    assert acme.read(batch_id)["status"] == "expired"
    codes = [line["error"]["code"] for line in acme.lines_of(batch_id)[1].values()]
    assert codes == ["batch_expired"] * 2
    assert job_of(batch_id).charge_pico == 0


def test_a_batch_that_nobody_looked_at_for_a_day_expires_unread(acme: BatchTenant) -> None:
    batch_id = acme.create(b'{"not": "a line"}\n')

    tend(datetime.now(UTC) + DAY)

    batch = acme.read(batch_id)
    assert (batch["status"], batch["errors"]) == ("expired", None)
    assert (batch["output_file_id"], batch["error_file_id"]) == (None, None)


def test_cancelling_again_changes_nothing_and_an_ended_batch_cannot_be(acme: BatchTenant) -> None:
    batch_id = acme.running("a")
    first = at_once([lambda: acme.cancel(batch_id)] * 50)
    tended()
    again = acme.cancel(batch_id)

    assert {one["cancelling_at"] for one in first} == {again["cancelling_at"]}
    assert again["status"] == "cancelled"
    assert [kind for kind, _ in told_of(batch_id)] == ["batch.cancelled"]
    done = acme.running("a")
    answer(done, "a")
    tended()
    refused = acme.door.post(f"/v1/batches/{done}/cancel")
    assert refused.status_code == 409
    assert refused.json()["error"]["message"] == "Cannot cancel a batch with status 'completed'."
    assert acme.read(done)["cancelling_at"] is None


def test_a_task_that_comes_twice_or_many_times_at_once_ends_a_batch_once(acme: BatchTenant) -> None:
    batch_id = acme.running(*map(str, range(20)))
    for number in range(20):
        answer(batch_id, str(number))

    at_once([tended] * 8)
    tended(100)

    assert acme.read(batch_id)["status"] == "completed"
    assert len(acme.lines_of(batch_id)[0]) == 20
    assert len(facade.list_files(acme.owner, rows_max=9, purpose="batch_output")) == 1
    assert len(told_of(batch_id)) == 1


def test_an_output_whose_writer_dies_is_never_seen_and_is_swept(
    acme: BatchTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id = acme.running("a", "b")
    answer(batch_id, "a")
    refuse(batch_id, "b")
    now = datetime.now(UTC)
    dead = job_leases.lease_job(now, 60)
    assert dead is not None
    staged = stage_file(dead, "dead.jsonl", [b"{}\n"], now)
    assert staged is not None
    assert facade.list_files(acme.owner, rows_max=9, purpose="batch_output") == []

    tended(61)

    assert acme.read(batch_id)["status"] == "completed"
    assert [len(one) for one in acme.lines_of(batch_id)] == [1, 1]
    with pytest.raises(job_leases.LeaseLost):
        output.finish(dead, now)
    assert len(facade.list_files(acme.owner, rows_max=9, purpose="batch_output")) == 2
    sweep_files(now + 2 * DAY)
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute("SELECT purpose FROM bulk_file WHERE purpose = 'staged'")
        assert cursor.fetchall() == []
    assert [len(one) for one in acme.lines_of(batch_id)] == [1, 1]


def test_outputs_expire_as_their_owner_asked(acme: BatchTenant) -> None:
    batch_id = acme.running("a", output_expires_after={"anchor": "created_at", "seconds": 7200})
    answer(batch_id, "a")

    tended()

    [file] = facade.list_files(acme.owner, rows_max=9, purpose="batch_output")
    assert file.expires_at is not None
    assert abs(file.expires_at - file.created_at - timedelta(hours=2)) < timedelta(seconds=30)
    assert file.filename == f"{batch_id}_output.jsonl"


def test_a_line_s_answer_is_one_line_and_kept_to_the_byte(acme: BatchTenant) -> None:
    batch_id = acme.running("a")
    answer(batch_id, "a")
    whole = '{"content": "\\n\\u0000 \U0001f600",\n "price": 1.10, "big": 12345678901234567890}'
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute("UPDATE bulk_item SET answer = %s", [whole])

    tended()

    assert acme.lines_of(batch_id)[0]["a"]["response"]["body"] == {
        "content": "\n\0 \U0001f600",
        "price": 1.10,
        "big": 12345678901234567890,
    }


def test_the_rows_of_an_old_batch_go_and_its_files_stay(acme: BatchTenant) -> None:
    batch_id = acme.running("a")
    answer(batch_id, "a")
    tended()
    now = datetime.now(UTC)
    assert not forget_lines(now + timedelta(days=6))
    assert len(items_of(batch_id)) == 1

    while forget_lines(now + timedelta(days=8)):
        pass

    assert items_of(batch_id) == []
    assert acme.read(batch_id)["request_counts"]["completed"] == 1
    assert list(acme.lines_of(batch_id)[0]) == ["a"]


def test_the_end_of_a_batch_that_took_long_is_mailed_to_who_pays(acme: BatchTenant) -> None:
    quick, slow = acme.running("a"), acme.running("a")
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "UPDATE bulk_job SET created_at = now() - interval '1 hour' WHERE id = %s",
            [job_of(slow).id],
        )
    for batch_id in (quick, slow):
        answer(batch_id, "a")
    tended()

    assert [told_of(batch_id)[0][1]["mailed"] for batch_id in (quick, slow)] == [False, True]
    [(kind, data)] = told_of(slow)
    subject, text = render(kind, {"organization": "acme", "description": "Done.", "data": data})
    assert subject == "[acme] Done."
    assert f"id: {slow}\n" in text
    assert "request counts: 1 total, 0 failed, 1 completed\n" in text
    assert "charge: 0.000000000007\n" in text
    assert event_kinds()[kind].mail_permission is Permission.BILLING_READ


def test_a_job_that_cannot_be_looked_after_does_not_keep_the_others(acme: BatchTenant) -> None:
    broken, whole = acme.running("a", "b"), acme.running("a")
    answer(broken, "a")
    left = take_line(broken, "b")
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "UPDATE bulk_job SET state = 'finalizing' WHERE id = %s", [job_of(broken).id]
        )
    answer(whole, "a")

    tended()
    assert acme.read(whole)["status"] == "completed"
    assert acme.read(broken)["status"] == "finalizing", "a line has not ended: no file is right"
    store(left)
    settle(left)
    tended(31)

    assert acme.read(broken)["status"] == "completed"


def test_a_tenant_with_many_jobs_does_not_keep_another_s_waiting(acme: BatchTenant) -> None:
    for _ in range(20):
        acme.create(b"{}\n")
    globex = make_batch_tenant("globex")
    globex.create(b"{}\n")
    now, turns = datetime.now(UTC), 0
    while (job := job_leases.lease_job(now, 60)) is not None:
        turns += 1
        if job.organization_id == globex.owner.organization_id:
            break

    # By lot between the two: not once in a million runs is it the last of the 21.
    assert job is not None
    assert turns <= 20


def test_a_long_step_keeps_its_job_and_a_superseded_one_gives_way(acme: BatchTenant) -> None:
    batch_id = acme.create(b"{}\n")
    with override_settings(BATCH_TEND_LEASE_S=1):
        job = job_leases.lease_job(datetime.now(UTC), 1)
        assert job is not None
        until = job_of(batch_id).tended_until
        assert until is not None
        with job_leases.renewed(job):
            wait_until(lambda: job_of(batch_id).tended_until not in (until, None))
        assert job_leases.lease_job(datetime.now(UTC) + DAY, 60) is None, "whatever our clock says"
        let_leases_run(60)
        other = job_leases.lease_job(datetime.now(UTC), 60)
        assert other is not None
        with job_leases.renewed(job), pytest.raises(job_leases.LeaseLost):
            job_leases.renew(job, 1)
        assert job_leases.job_row(other).tend_token == job.tend_token + 1
