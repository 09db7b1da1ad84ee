"""The cast of batches: an input and what becomes of it, by the public door and by hand.

Workers do not run: a test tends by itself, and answers lines as the pump would write them down.
"""

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar, cast
from uuid import UUID

import httpx
import openai
from django.db import connections

from batch_jobs import facade, ports
from batch_jobs.contracts import Owner
from batch_jobs.models import BulkItem, BulkJob
from batch_jobs.ports import ModelTerms
from batch_jobs.pump.claiming import ClaimedItem
from batch_jobs.pump.transitions import (
    Answered,
    Attempt,
    Ended,
    Returned,
    end_items,
    return_items,
    store_answers,
)
from batch_jobs.tending import tend
from tests.batch_jobs.cast import Tenant, make_tenant
from tests.batch_jobs.pump_cast import take
from tests.batch_jobs.scripted_pipeline import CHARGE_PICO, ScriptedPipeline
from tests.headrace.door import Door

CHAT: Literal["/v1/chat/completions"] = "/v1/chat/completions"
MODEL = "small"
Answer = TypeVar("Answer")


class Market(ScriptedPipeline):
    """A pipeline by script that sells one model; a word is a token."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self.model = model

    def terms(self, organization_id: UUID, project_id: UUID, model: str) -> ModelTerms | None:
        """The same for everybody."""
        if model != self.model:
            return None
        return ModelTerms(model, 8192, 4096, "USD", 1, 1, 1, 2, 2, 2)

    def refusal(self, endpoint: str, body: Any) -> str | None:
        """Every body is fine."""
        return None

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Words."""
        return [len(text.split()) for text in texts]


@contextmanager
def selling(model: str) -> Iterator[Market]:
    """One model is for sale, as long as the block runs."""
    real, market = ports._pipeline_port, Market(model)
    ports.provide_pipeline_port(market)
    try:
        yield market
    finally:
        ports._pipeline_port = real


def line(custom_id: object = "one", **changes: Any) -> dict[str, Any]:
    """A line that can be run, with `changes`; those of None are left out."""
    whole = {
        "custom_id": custom_id,
        "method": "POST",
        "url": CHAT,
        "body": {"model": MODEL, "messages": [{"role": "user", "content": f"text of {custom_id}"}]},
        **changes,
    }
    return {name: value for name, value in whole.items() if value is not None}


def body(**changes: Any) -> dict[str, Any]:
    """The body of a line, with `changes`; those of None are left out."""
    whole = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], **changes}
    return {name: value for name, value in whole.items() if value is not None}


def jsonl(lines: Iterable[dict[str, Any]]) -> bytes:
    """Lines of JSON."""
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


@dataclass(frozen=True)
class BatchTenant:
    """A tenant with batches of its own."""

    tenant: Tenant
    door: Door

    @property
    def owner(self) -> Owner:
        """On whose behalf files and batches are made."""
        return Owner(self.tenant.organization_id, self.tenant.project_id, self.tenant.key_id)

    def upload(self, content: bytes, purpose: str = "batch") -> str:
        """The id of a file with this content."""
        stored = facade.store_upload(self.owner, purpose, "in.jsonl", io.BytesIO(content), None)
        return f"file-{stored.file_id.hex}"

    def create(self, content: bytes, **more: Any) -> str:
        """The id of a fresh batch over this input."""
        answer = self.post(self.upload(content), **more)
        assert answer.status_code == 200, answer.text
        batch_id: str = answer.json()["id"]
        return batch_id

    def post(self, file_id: str, **more: Any) -> httpx.Response:
        """Asks for a batch over a file."""
        asked = {
            "input_file_id": file_id,
            "endpoint": CHAT,
            "completion_window": "24h",
            **more,
        }
        return self.door.post("/v1/batches", json=asked)

    def running(self, *custom_ids: str, **more: Any) -> str:
        """The id of a batch that is in progress, with a line for each custom id."""
        batch_id = self.create(jsonl(map(line, custom_ids)), **more)
        tend(datetime.now(UTC))
        assert self.read(batch_id)["status"] == "in_progress"
        return batch_id

    def cancel(self, batch_id: str) -> dict[str, Any]:
        """The batch as the answer to its cancelling shows it."""
        answer = self.door.post(f"/v1/batches/{batch_id}/cancel")
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    def read(self, batch_id: str) -> dict[str, Any]:
        """The batch as its owner sees it."""
        answer = self.door.get(f"/v1/batches/{batch_id}")
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    def content(self, file_id: str) -> list[dict[str, Any]]:
        """The lines of a file of the project."""
        file = facade.open_content(self.owner, UUID(file_id.removeprefix("file-")))
        whole = facade.read_content(file, 0, file.info.size_bytes)
        assert whole.endswith(b"\n")
        return [json.loads(one) for one in whole.splitlines()]

    def lines_of(self, batch_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The output and the error lines of a batch that has ended, by custom id."""
        batch = self.read(batch_id)
        found = []
        for name in ("output_file_id", "error_file_id"):
            lines = self.content(batch[name]) if batch[name] else []
            found.append({one["custom_id"]: one for one in lines})
            assert len(found[-1]) == len(lines), "no line twice"
        output, errors = found
        assert not output.keys() & errors.keys(), "each line in one file"
        return output, errors


def make_batch_tenant(name: str) -> BatchTenant:
    """A fresh organization with a door."""
    tenant = make_tenant(name)
    return BatchTenant(tenant, Door(tenant.secret))


def let_leases_run(seconds: float) -> None:
    """What the database knows of leases is so much older."""
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "UPDATE bulk_job SET tended_until = tended_until - make_interval(secs => %s)", [seconds]
        )


def tended(seconds: float = 0) -> None:
    """Everybody's jobs are looked after, so much later."""
    if seconds:
        let_leases_run(seconds)
    tend(datetime.now(UTC) + timedelta(seconds=seconds))


def by_client(secret: str, story: Callable[[openai.AsyncOpenAI], Awaitable[Answer]]) -> Answer:
    """What a stock client does at the REST half of the door."""

    async def tell() -> Answer:
        from headrace.asgi import rest

        transport = httpx.ASGITransport(app=cast("Any", rest))
        async with httpx.AsyncClient(transport=transport) as http:
            client = openai.AsyncOpenAI(
                api_key=secret,
                base_url="http://127.0.0.1/v1",
                http_client=http,
                _strict_response_validation=True,
            )
            return await story(client)

    return asyncio.run(tell())


def job_of(batch_id: str) -> BulkJob:
    """The row behind a batch."""
    return BulkJob.objects.using("housekeeper").get(id=UUID(batch_id.removeprefix("batch_")))


def items_of(batch_id: str) -> list[BulkItem]:
    """The rows of its lines, in the order of the input."""
    items = BulkItem.objects.using("housekeeper").filter(job_id=job_of(batch_id).id)
    return list(items.order_by("line"))


def take_line(batch_id: str, custom_id: str) -> ClaimedItem:
    """A worker has this line, and none of the others."""
    job_id = job_of(batch_id).id
    claimed = take(1000)
    [taken] = [one for one in claimed if (one.job_id, one.custom_id) == (job_id, custom_id)]
    return_items([Returned(one, Attempt.NOT_MADE) for one in claimed if one is not taken])
    return taken


def store(item: ClaimedItem) -> None:
    """Its answer is stored, and not yet charged."""
    whole = json.dumps({"object": "chat.completion", "about": item.custom_id})
    assert store_answers([Answered(item, whole, 10, 4, 3)])


def settle(item: ClaimedItem) -> None:
    """A stored answer is charged."""
    assert end_items([Ended(item, CHARGE_PICO)])[0]


def answer(batch_id: str, custom_id: str) -> None:
    """A line is answered and charged."""
    item = take_line(batch_id, custom_id)
    store(item)
    settle(item)


def refuse(batch_id: str, custom_id: str, status_code: int = 400) -> None:
    """A line is refused for what it is, or, with status 0, gets no answer at all."""
    item = take_line(batch_id, custom_id)
    ended = Ended(item, 0, status_code, "unsupported_parameter", "not that one")
    assert end_items([ended])[0]


def told_of(batch_id: str) -> list[tuple[str, dict[str, Any]]]:
    """The events of a batch, in their order: kind and data."""
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "SELECT kind, data FROM tenants_outbox_event"
            " WHERE organization_id = %s AND data ->> 'id' = %s ORDER BY id",
            [job_of(batch_id).organization_id, batch_id],
        )
        return [(kind, json.loads(data)) for kind, data in cursor.fetchall()]
