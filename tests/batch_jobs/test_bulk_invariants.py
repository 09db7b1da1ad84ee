"""Bulk work that was tampered with is found out by `reconcile`."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connections
from uuid_utils.compat import uuid7

from batch_jobs.models import BulkAttempt, BulkItem, BulkJob, StoredFile
from billing.contracts import HoldRequest, UsageCounts
from billing.facade import reconcile, settle
from tests.billing.cast import Tenant, make_tenant, used

DONE, FAILED, PARENT, LEASED = "done-line", "failed-line", "long", "leased-line"
CHARGE_PICO = 30


def attempted(tenant: Tenant, item: BulkItem, counts: UsageCounts) -> HoldRequest:
    """An attempt at the item, settled by these counts."""
    request = tenant.held()
    BulkAttempt.objects.using("housekeeper").create(
        request_id=request.request_id, organization_id=tenant.organization_id, item_id=item.id
    )
    settle([used(request, counts)])
    return request


def new_file(tenant: Tenant, purpose: str) -> UUID:
    """A row of one stored file."""
    file = StoredFile.objects.using("housekeeper").create(
        organization_id=tenant.organization_id,
        project_id=tenant.project_id,
        key_id=tenant.key_id,
        purpose=purpose,
        filename="lines.jsonl",
        size_bytes=1,
        storage_name=str(uuid7()),
    )
    return file.id


def new_job(tenant: Tenant, **fields: object) -> BulkJob:
    """A job of the tenant."""
    return BulkJob.objects.using("housekeeper").create(
        organization_id=tenant.organization_id,
        project_id=tenant.project_id,
        key_id=tenant.key_id,
        endpoint="/v1/chat/completions",
        **fields,
    )


def new_item(job: BulkJob, custom_id: str | None, **fields: object) -> BulkItem:
    """An item of the job."""
    return BulkItem.objects.using("housekeeper").create(
        organization_id=job.organization_id, job_id=job.id, line=1, custom_id=custom_id, **fields
    )


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """Somebody with a finished batch of two lines, one done at the second attempt, and a running
    job with a long document and a leased one."""
    tenant = make_tenant("acme")
    batch = new_job(
        tenant,
        kind="batch",
        state="completed",
        items_total=2,
        items_completed=1,
        items_failed=1,
        prompt_tokens=20,
        cached_tokens=0,
        completion_tokens=10,
        charge_pico=CHARGE_PICO,
        output_file_id=new_file(tenant, "batch_output"),
        error_file_id=new_file(tenant, "batch_output"),
    )
    done = new_item(
        batch, DONE, state="done", prompt_tokens=20, completion_tokens=10, charge_pico=CHARGE_PICO
    )
    attempted(tenant, done, UsageCounts(0, 0, 0))
    done.request_id = attempted(tenant, done, UsageCounts(20, 0, 10)).request_id
    done.save(update_fields=["request_id"])
    new_item(batch, FAILED, state="failed", error_code="server_error")

    running = new_job(tenant, kind="summary", state="in_progress", items_total=3)
    root = new_item(running, PARENT, state="waiting", parts_left=2)
    for part in range(2):
        new_item(running, None, state="queued", parent_id=root.id, part=part)
    leased = new_item(
        running,
        LEASED,
        state="leased",
        lease_expires_at=datetime.now(UTC) + timedelta(hours=1),
    )
    new_item(running, "copy", state="waiting", same_as_id=leased.id)
    leased.request_id = attempted(tenant, leased, UsageCounts(0, 0, 0)).request_id
    leased.save(update_fields=["request_id"])
    assert reconcile() == []
    return tenant


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ("UPDATE bulk_item SET completion_tokens = 11 WHERE custom_id = 'done-line'", "totals"),
        ("UPDATE bulk_job SET items_total = 3 WHERE kind = 'batch'", "totals"),
        ("UPDATE bulk_job SET items_completed = 0 WHERE kind = 'batch'", "totals"),
        ("UPDATE bulk_job SET items_failed = 0 WHERE kind = 'batch'", "totals"),
        ("UPDATE bulk_job SET charge_pico = 31 WHERE kind = 'batch'", "totals"),
        ("DELETE FROM bulk_item WHERE custom_id = 'failed-line'", "totals"),
        ("UPDATE bulk_item SET state = 'queued' WHERE custom_id = 'failed-line'", "unfinished"),
        ("UPDATE bulk_item SET charge_pico = 1 WHERE custom_id = 'failed-line'", "of its own"),
        ("UPDATE bulk_item SET request_id = NULL WHERE custom_id = 'done-line'", "of its own"),
        (
            (
                "UPDATE bulk_item SET request_id = (SELECT request_id FROM bulk_item"
                " WHERE custom_id = 'done-line' AND organization_id = %(tenant)s)"
                " WHERE custom_id = 'leased-line'"
            ),
            "by one request",
        ),
        (
            (
                "DELETE FROM bulk_attempt USING bulk_item i"
                " WHERE i.request_id = bulk_attempt.request_id"
            ),
            "no attempt at it",
        ),
        ("UPDATE bulk_item SET parts_left = 1 WHERE custom_id = 'long'", "number of parts"),
        (
            (
                "UPDATE bulk_item SET same_as_id = (SELECT id FROM bulk_item"
                " WHERE custom_id = 'done-line' AND organization_id = %(tenant)s)"
                " WHERE custom_id = 'copy'"
            ),
            "has ended",
        ),
        ("UPDATE bulk_job SET output_file_id = NULL WHERE kind = 'batch'", "no file"),
        ("UPDATE bulk_job SET error_file_id = NULL WHERE kind = 'batch'", "no file"),
        ("UPDATE bulk_item SET charge_pico = 29 WHERE custom_id = 'done-line'", "another charge"),
        (
            (
                "UPDATE bulk_item SET request_id = (SELECT a.request_id FROM bulk_attempt a"
                " WHERE a.item_id = bulk_item.id AND a.request_id <> bulk_item.request_id)"
                " WHERE custom_id = 'done-line'"
            ),
            "not its item's answer",
        ),
        (
            "UPDATE bulk_item SET state = 'failed' WHERE custom_id = 'done-line'",
            "not its item's answer",
        ),
    ],
)
def test_reconcile_finds_bulk_work_that_was_tampered_with(
    acme: Tenant, change: str, finding: str
) -> None:
    with connections["housekeeper"].cursor() as cursor:
        table = change.removeprefix("DELETE FROM ").removeprefix("UPDATE ").split()[0]
        cursor.execute(
            f"{change} AND {table}.organization_id = %(tenant)s",
            {"tenant": acme.organization_id},
        )
        assert cursor.rowcount >= 1
    findings = reconcile()

    assert any(finding in line for line in findings), findings
