"""The cast of summarisation jobs: a tenant at the public door, and a pump by hand.

Documents are read by tending itself; what the pump would write down of an answer is written here,
with its rules for long documents and for those that are alike.
"""

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx
from django.db import connections

from batch_jobs import facade
from batch_jobs.contracts import Owner
from batch_jobs.models import BulkItem, BulkJob
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


def lease(item_id: int) -> None:
    """A worker has the item, for a minute."""
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "UPDATE bulk_item SET state = 'leased', lease_token = lease_token + 1,"
            " attempts = attempts + 1, lease_expires_at = now() + interval '1 minute',"
            " request_id = gen_random_uuid() WHERE id = %s AND state = 'queued'",
            [item_id],
        )
        assert cursor.rowcount == 1


def answer(summary_id: str, *custom_ids: str) -> None:
    """Writes down the summaries of documents."""
    for custom_id in custom_ids:
        answer_item(item_of(summary_id, custom_id).id, f"summary of {custom_id}")


def answer_item(item_id: int, text: str) -> None:
    """Writes down an item's answer and charge."""
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "UPDATE bulk_item SET state = 'done', answer = %s, prompt_tokens = %s,"
            " cached_tokens = %s, completion_tokens = %s, charge_pico = %s, ended_at = now(),"
            " lease_expires_at = NULL, request_id = coalesce(request_id, gen_random_uuid())"
            " WHERE id = %s AND state IN ('queued', 'leased')"
            " RETURNING job_id, parent_id, custom_id IS NOT NULL",
            [text, PROMPT, CACHED, COMPLETION, CHARGE_PICO, item_id],
        )
        job_id, parent_id, is_whole = cursor.fetchone()
        cursor.execute(
            "UPDATE bulk_item SET state = 'done', ended_at = now()"
            " WHERE same_as_id = %s AND state = 'waiting'",
            [item_id],
        )
        ended = cursor.rowcount + is_whole
        cursor.execute(
            "UPDATE bulk_item SET parts_left = parts_left - 1,"
            " state = CASE parts_left WHEN 1 THEN 'queued' ELSE state END"
            " WHERE id = %s AND state = 'waiting'",
            [parent_id],
        )
        cursor.execute(
            "UPDATE bulk_job SET items_completed = items_completed + %s,"
            " prompt_tokens = prompt_tokens + %s, cached_tokens = cached_tokens + %s,"
            " completion_tokens = completion_tokens + %s, charge_pico = charge_pico + %s"
            " WHERE id = %s",
            [ended, PROMPT, CACHED, COMPLETION, CHARGE_PICO, job_id],
        )
    _finalize_if_over(job_id)


def fail(summary_id: str, *custom_ids: str) -> None:
    """Writes down that documents cannot be summarised."""
    for custom_id in custom_ids:
        fail_item(item_of(summary_id, custom_id).id)


def fail_item(item_id: int) -> None:
    """Writes down an item's failure: it takes its whole document along, and those like it."""
    failed = "error_code = 'too_odd', error_message = 'it is too odd', ended_at = now()"
    with connections["housekeeper"].cursor() as cursor:
        ancestors = list(_with_ancestors(item_id))
        cursor.execute(
            f"UPDATE bulk_item SET state = 'failed', {failed}, lease_expires_at = NULL"
            " WHERE id = ANY (%s) OR same_as_id = ANY (%s) AND state = 'waiting'"
            " RETURNING custom_id",
            [ancestors, ancestors],
        )
        documents = sum(custom_id is not None for (custom_id,) in cursor.fetchall())
        cursor.execute(
            f"UPDATE bulk_item SET state = 'cancelled', {failed}"
            " WHERE parent_id = ANY (%s) AND state IN ('waiting', 'queued') RETURNING job_id",
            [ancestors],
        )
        job_id = BulkItem.objects.using("housekeeper").get(id=item_id).job_id
        cursor.execute(
            "UPDATE bulk_job SET items_failed = items_failed + %s WHERE id = %s",
            [documents, job_id],
        )
    _finalize_if_over(job_id)


def told_of(summary_id: str) -> list[str]:
    """The kinds of the events of a job, in their order."""
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "SELECT kind FROM tenants_outbox_event WHERE data ->> 'id' = %s ORDER BY id",
            [summary_id],
        )
        return [kind for (kind,) in cursor.fetchall()]


def _with_ancestors(item_id: int | None) -> Iterator[int]:
    while item_id is not None:
        yield item_id
        item_id = BulkItem.objects.using("housekeeper").get(id=item_id).parent_id


def _finalize_if_over(job_id: UUID) -> None:
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "UPDATE bulk_job SET state = 'finalizing', finalizing_at = now()"
            " WHERE id = %s AND state = 'in_progress' AND NOT EXISTS (SELECT FROM bulk_item"
            " WHERE job_id = %s AND state IN ('waiting', 'queued', 'leased', 'answered'))",
            [job_id, job_id],
        )


def _uuid(summary_id: str) -> UUID:
    return UUID(summary_id.removeprefix("summary_"))
