"""The cast of the pump: jobs planted in their tables, and how items and jobs look."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction

from batch_jobs.contracts import Owner
from batch_jobs.files.writing import write_file
from batch_jobs.models import BulkItem, BulkJob, ProgressSample
from batch_jobs.pump.claiming import ClaimedItem, claim
from batch_jobs.pump.transitions import Answered, Ended, end_items, store_answers
from tests.batch_jobs.cast import Tenant

LEASE_S = 60
GRACE_S = 600
JOBS_MAX = 16


@dataclass(frozen=True)
class Node:
    """A document of a planted tree; with children it waits for them."""

    name: str
    children: Sequence["Node"] = ()


def plant(tenant: Tenant, *custom_ids: str, kind: str = "batch", **job: Any) -> UUID:
    """A job in progress over one line for each custom id; `job` are columns of its row."""
    row = plant_job(tenant, kind=kind, items_total=len(custom_ids), **job)
    lines = [line_of(name) for name in custom_ids]
    offsets = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines))]
    file = write_file(
        Owner(tenant.organization_id, tenant.project_id, tenant.key_id),
        "batch",
        "input.jsonl",
        [line + b"\n" for line in lines],
    )
    BulkItem.objects.using("housekeeper").bulk_create(
        BulkItem(
            organization_id=tenant.organization_id,
            job_id=row.id,
            line=number,
            place=number,
            custom_id=name,
            source_id=file.file_id,
            source_offset=offset,
            source_bytes=len(line),
            bound_pico=10,
        )
        for number, (name, line, offset) in enumerate(
            zip(custom_ids, lines, offsets, strict=True), start=1
        )
    )
    return row.id


def line_of(name: str) -> bytes:
    """A line of a batch's input whose one message is `name`."""
    body = {"model": "small", "messages": [{"role": "user", "content": name}]}
    return json.dumps(
        {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}
    ).encode()


def plant_job(tenant: Tenant, **job: Any) -> BulkJob:
    """A job without items, in progress unless `job` says otherwise."""
    values = {
        "kind": "batch",
        "state": "in_progress",
        "endpoint": "/v1/chat/completions",
        "model": "small",
    } | job
    return BulkJob.objects.using("housekeeper").create(
        organization_id=tenant.organization_id,
        project_id=tenant.project_id,
        key_id=tenant.key_id,
        **values,
    )


def plant_tree(tenant: Tenant, root: Node) -> UUID:
    """A job over one document in parts."""
    row = plant_job(tenant, kind="summary", items_total=1)
    _plant_node(tenant, row.id, root, None, 0)
    return row.id


def _plant_node(tenant: Tenant, job_id: UUID, node: Node, parent_id: int | None, part: int) -> None:
    item = BulkItem.objects.using("housekeeper").create(
        organization_id=tenant.organization_id,
        job_id=job_id,
        line=1,
        custom_id=node.name if parent_id is None else None,
        parent_id=parent_id,
        part=part,
        parts_left=len(node.children),
        state="waiting" if node.children else "queued",
    )
    for number, child in enumerate(node.children):
        _plant_node(tenant, job_id, child, item.id, number)


def take(items_max: int = 100) -> list[ClaimedItem]:
    """What a claim gets now."""
    return claim(items_max, LEASE_S, JOBS_MAX)


def answer(*items: ClaimedItem) -> frozenset[int]:
    """Stores an answer to each; those that were still held."""
    return store_answers([Answered(item, f"answer {item.item_id}", 10, 4, 3) for item in items])


def finish(*items: ClaimedItem) -> frozenset[int]:
    """Stores an answer to each and charges 7; those that ended."""
    answer(*items)
    return end_items([Ended(item, 7) for item in items])[0]


def fail(*items: ClaimedItem, code: str = "broken") -> frozenset[int]:
    """Fails each; those that ended."""
    return end_items(
        [Ended(item, status_code=400, error_code=code, error_message="no") for item in items]
    )[0]


def job_row(job_id: UUID) -> BulkJob:
    """As it is now."""
    return BulkJob.objects.using("housekeeper").get(id=job_id)


def item_rows(job_id: UUID) -> list[BulkItem]:
    """As they are now, in the order they were planted."""
    return list(BulkItem.objects.using("housekeeper").filter(job_id=job_id).order_by("id"))


def states(job_id: UUID) -> list[str]:
    """Of a job's items, in the order they were planted."""
    return [item.state for item in item_rows(job_id)]


def check_totals(job_id: UUID) -> BulkJob:
    """The job, which must say what its items add up to, as must its progress."""
    job, items = job_row(job_id), item_rows(job_id)
    visible = [item.state for item in items if item.custom_id is not None]
    done = [item for item in items if item.state == "done"]
    assert job.items_completed == visible.count("done")
    assert job.items_failed == visible.count("failed")
    assert job.charge_pico == sum(item.charge_pico for item in items)
    assert job.prompt_tokens == sum(item.prompt_tokens for item in done)
    assert job.cached_tokens == sum(item.cached_tokens for item in done)
    assert job.completion_tokens == sum(item.completion_tokens for item in done)
    samples = list(ProgressSample.objects.using("housekeeper").filter(job_id=job_id))
    assert sum(sample.items for sample in samples) == job.items_completed + job.items_failed
    assert sum(sample.charge_pico for sample in samples) == job.charge_pico
    assert sum(sample.prompt_tokens for sample in samples) == job.prompt_tokens
    return job


def lapse() -> None:
    """All leases have run out, as if their holders had died long ago."""
    leased = BulkItem.objects.using("housekeeper").filter(lease_expires_at__isnull=False)
    with transaction.atomic(using="housekeeper"):
        # In the order in which pumps lock them: tests do this beside pumps.
        ids = list(leased.order_by("id").select_for_update().values_list("id", flat=True))
        leased.filter(id__in=ids).update(lease_expires_at="2020-01-01T00:00:00Z")
