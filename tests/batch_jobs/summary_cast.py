"""The cast of summarisation jobs: a tenant at the public door, and a pump by hand.

Documents are read by tending itself. Which item ends next, and how, a test says; it is written down
by the pump's own lists.
"""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx
from django.db import connections
from uuid_utils.compat import uuid7

from batch_jobs import facade
from batch_jobs.contracts import Owner
from batch_jobs.invariants import INVARIANTS
from batch_jobs.models import BulkItem, BulkJob
from batch_jobs.pump.claiming import ClaimedItem, claim
from batch_jobs.pump.transitions import Answered, Ended, end_items, store_answers
from batch_jobs.tending import tend
from tests.batch_jobs.batch_cast import MODEL, jsonl
from tests.batch_jobs.cast import Tenant, make_tenant
from tests.headrace.door import Door

SUMMARIES = "/api/v1/summaries"
PROMPT, CACHED, COMPLETION, CHARGE_PICO = 10, 4, 3, 7
"""What each answer here took."""


@dataclass(frozen=True)
class SummaryTenant:
    """A tenant with summarisation jobs of its own."""

    tenant: Tenant
    door: Door

    @property
    def owner(self) -> Owner:
        """On whose behalf files and jobs are made."""
        return Owner(self.tenant.organization_id, self.tenant.project_id, self.tenant.key_id)

    def upload(self, documents: Sequence[dict[str, Any]], name: str = "in.jsonl") -> str:
        """The id of a file of these documents."""

        content = io.BytesIO(jsonl(documents))
        return (
            f"file-{facade.store_upload(self.owner, 'user_data', name, content, None).file_id.hex}"
        )

    def post(self, **asked: Any) -> httpx.Response:
        """Asks for a job."""
        return self.door.post(SUMMARIES, json={"model": MODEL, **asked})

    def create(self, *custom_ids: str, **asked: Any) -> str:
        """The id of a fresh job over one document for each custom id."""
        file_id = self.upload([document(custom_id) for custom_id in custom_ids])
        answer = self.post(**{"input_file_ids": [file_id], **asked})
        assert answer.status_code == 201, answer.text
        summary_id: str = answer.json()["id"]
        return summary_id

    def ready(self, *custom_ids: str, **asked: Any) -> str:
        """The id of a job that was read and waits to be started."""
        summary_id = self.create(*custom_ids, start=False, **asked)
        tend_now()
        assert self.read(summary_id)["status"] == "ready"
        return summary_id

    def running(self, *custom_ids: str, **asked: Any) -> str:
        """The id of a job that is in progress."""
        summary_id = self.create(*custom_ids, **asked)
        tend_now()
        assert self.read(summary_id)["status"] == "in_progress"
        return summary_id

    def read(self, summary_id: str) -> dict[str, Any]:
        """The job as its owner sees it."""
        answer = self.door.get(f"{SUMMARIES}/{summary_id}")
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    def try_to(self, verb: str, summary_id: str) -> httpx.Response:
        """Steers a job."""
        return self.door.post(f"{SUMMARIES}/{summary_id}/{verb}")

    def act(self, verb: str, summary_id: str) -> dict[str, Any]:
        """Steers a job that can be steered so; returns it."""
        answer = self.try_to(verb, summary_id)
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    def results(self, summary_id: str, query: str = "format=jsonl") -> list[dict[str, Any]]:
        """The rows of a job's results."""
        answer = self.door.get(f"{SUMMARIES}/{summary_id}/results?{query}")
        assert answer.status_code == 200, answer.text
        return [json.loads(row) for row in answer.text.splitlines()]


def make_summary_tenant(name: str) -> SummaryTenant:
    """A fresh organization with a door."""
    tenant = make_tenant(name)
    return SummaryTenant(tenant, Door(tenant.secret))


def document(custom_id: str, text: str | None = None) -> dict[str, Any]:
    """A document as an input file spells it."""
    return {"id": custom_id, "text": text or f"text of {custom_id}"}


def tend_now() -> None:
    """One round of tending, in which every job has its turn."""
    BulkJob.objects.using("housekeeper").update(tended_until=None)
    tend(datetime.now(UTC))


def job_of(summary_id: str) -> BulkJob:
    """The row behind a job."""
    return BulkJob.objects.using("housekeeper").get(id=_uuid(summary_id))


def items_of(summary_id: str) -> list[BulkItem]:
    """Its items, in their order."""
    items = BulkItem.objects.using("housekeeper").filter(job_id=_uuid(summary_id))
    return list(items.order_by("id"))


def states_of(summary_id: str) -> dict[str, str]:
    """The state of each document, by its id."""
    return {one.custom_id: one.state for one in items_of(summary_id) if one.custom_id}


def item_of(summary_id: str, custom_id: str) -> BulkItem:
    """The item that a document's owner sees."""
    return BulkItem.objects.using("housekeeper").get(job_id=_uuid(summary_id), custom_id=custom_id)


def set_job(summary_id: str, **values: Any) -> None:
    """Makes a job what a test needs it to be."""
    BulkJob.objects.using("housekeeper").filter(id=_uuid(summary_id)).update(**values)


def make_tree(summary_id: str, custom_id: str, parts: int) -> list[int]:
    """Makes a queued document one of so many parts; returns their items."""
    root = item_of(summary_id, custom_id)
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO bulk_item (organization_id, job_id, line, parent_id, part, source_id,"
            " place, source_offset, source_bytes, parts_left, copies, bound_pico, state, retry_at,"
            " lease_token, attempts, prompt_tokens, cached_tokens, completion_tokens, charge_pico)"
            " SELECT organization_id, job_id, line, id, number, source_id, 0, 0, 0, 0, 0, 0,"
            " 'queued', retry_at, 0, 0, 0, 0, 0, 0"
            " FROM bulk_item, generate_series(0, %s - 1) AS number"
            " WHERE id = %s RETURNING id",
            [parts, root.id],
        )
        ids = [item_id for (item_id,) in cursor.fetchall()]
        cursor.execute(
            "UPDATE bulk_item SET state = 'waiting', parts_left = %s, source_id = NULL"
            " WHERE id = %s",
            [parts, root.id],
        )
    return ids


def lease(item_id: int) -> ClaimedItem:
    """A worker has the item, for a minute."""
    request_id = uuid7()
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "UPDATE bulk_item SET state = 'leased', lease_token = lease_token + 1,"
            " attempts = attempts + 1, lease_expires_at = now() + interval '1 minute',"
            " request_id = %s WHERE id = %s AND state = 'queued' RETURNING organization_id",
            [request_id, item_id],
        )
        (organization_id,) = cursor.fetchone()
        cursor.execute(
            "INSERT INTO bulk_attempt (request_id, organization_id, item_id) VALUES (%s, %s, %s)",
            [request_id, organization_id, item_id],
        )
    return held(item_id)


def held(item_id: int) -> ClaimedItem:
    """An item under lease, as its pump knows it."""
    item = BulkItem.objects.using("housekeeper").get(id=item_id)
    job = BulkJob.objects.using("housekeeper").get(id=item.job_id)
    assert item.request_id is not None
    return ClaimedItem(
        item_id=item.id,
        lease_token=item.lease_token,
        state=item.state,
        attempts=item.attempts,
        request_id=item.request_id,
        custom_id=item.custom_id,
        line=item.line,
        source_id=item.source_id,
        source_offset=item.source_offset,
        source_bytes=item.source_bytes,
        parent_id=item.parent_id,
        parts=item.source_id is None,
        bound_pico=item.bound_pico,
        kind=job.kind,
        endpoint=job.endpoint,
        job_id=job.id,
        organization_id=job.organization_id,
        project_id=job.project_id,
        key_id=job.key_id,
        job_created_at=job.created_at,
    )


def take(seats: int = 100) -> list[ClaimedItem]:
    """What a pump gets of all that there is to do."""
    return claim(seats, 60, 100)


def answer(summary_id: str, *custom_ids: str) -> None:
    """Writes down the summaries of documents."""
    for custom_id in custom_ids:
        answer_item(item_of(summary_id, custom_id).id, f"summary of {custom_id}")


def answer_item(item_id: int, text: str) -> None:
    """Writes down an item's answer and charge."""
    item = _leased(item_id)
    assert store_answers([Answered(item, text, PROMPT, CACHED, COMPLETION)]) == {item_id}
    end_items([Ended(item, CHARGE_PICO)])


def fail(summary_id: str, *custom_ids: str) -> None:
    """Writes down that documents cannot be summarised."""
    for custom_id in custom_ids:
        fail_item(item_of(summary_id, custom_id).id)


def fail_item(item_id: int) -> None:
    """Writes down an item's failure."""
    end_items([Ended(_leased(item_id), 0, 400, "too_odd", "it is too odd")])


def check_books(summary_id: str) -> None:
    """What must hold of any job."""
    job_id = job_of(summary_id).id
    with connections["housekeeper"].cursor() as cursor:
        for said, _, query in INVARIANTS:
            cursor.execute(query)
            assert [row for row in cursor.fetchall() if job_id in row] == [], said


def told_of(summary_id: str) -> list[str]:
    """The kinds of the events of a job, in their order."""
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "SELECT kind FROM tenants_outbox_event WHERE data ->> 'id' = %s ORDER BY id",
            [summary_id],
        )
        return [kind for (kind,) in cursor.fetchall()]


def _leased(item_id: int) -> ClaimedItem:
    item = BulkItem.objects.using("housekeeper").get(id=item_id)
    return held(item_id) if item.state == "leased" else lease(item_id)


def _uuid(summary_id: str) -> UUID:
    return UUID(summary_id.removeprefix("summary_"))
