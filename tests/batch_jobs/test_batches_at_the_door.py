"""`/v1/batches` as the stock client sees it, and as those see it who must not."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import openai
import pytest

from batch_jobs import facade as bulk
from batch_jobs.models import BulkJob
from batch_jobs.tending import tend
from tenants import facade
from tenants.contracts import KeyScope, KeySettings
from tests.batch_jobs.batch_cast import (
    CHAT,
    MODEL,
    BatchTenant,
    Market,
    answer,
    by_client,
    job_of,
    jsonl,
    line,
    make_batch_tenant,
    refuse,
    selling,
)
from tests.batch_jobs.cast import Tenant
from tests.batch_jobs.scripted_pipeline import CHARGE_PICO, outcome, turn
from tests.billing.cast import at_once
from tests.headrace.door import Door


@pytest.fixture
def market(django_database: object) -> Iterator[Market]:
    """Where their lines run."""
    with selling(MODEL) as market:
        yield market


@pytest.fixture
def acme(market: Market) -> BatchTenant:
    """Whose batches they are."""
    return make_batch_tenant("acme")


@pytest.fixture
def globex(acme: BatchTenant) -> BatchTenant:
    """Who must see nothing of them."""
    return make_batch_tenant("globex")


@pytest.fixture
def sibling(acme: BatchTenant) -> BatchTenant:
    """Another project of acme's."""
    organization_id = acme.owner.organization_id
    project_id = facade.create_project(organization_id, "sibling", using="housekeeper")
    key = facade.issue_key(organization_id, project_id, "sibling", using="housekeeper")
    tenant = Tenant(organization_id, project_id, key.key_id, key.secret)
    return BatchTenant(tenant, Door(key.secret))


def test_a_stock_client_makes_watches_and_cancels_a_batch(acme: BatchTenant) -> None:
    file_id = acme.upload(jsonl([line("a")]))

    async def story(client: openai.AsyncOpenAI) -> tuple[Any, ...]:
        made = await client.batches.create(
            input_file_id=file_id,
            endpoint=CHAT,
            completion_window="24h",
            metadata={"night": "monday"},
            output_expires_after={"anchor": "created_at", "seconds": 3600},
        )
        read = await client.batches.retrieve(made.id)
        cancelled = await client.batches.cancel(made.id)
        return made, read, cancelled

    made, read, cancelled = by_client(acme.tenant.secret, story)

    assert made.to_dict() == {
        "id": made.id,
        "object": "batch",
        "endpoint": CHAT,
        "model": None,
        "errors": None,
        "input_file_id": file_id,
        "completion_window": "24h",
        "status": "validating",
        "output_file_id": None,
        "error_file_id": None,
        "created_at": made.created_at,
        "in_progress_at": None,
        "expires_at": made.created_at + 24 * 3600,
        "finalizing_at": None,
        "completed_at": None,
        "failed_at": None,
        "expired_at": None,
        "cancelling_at": None,
        "cancelled_at": None,
        "request_counts": {"total": 0, "completed": 0, "failed": 0},
        "usage": {
            "input_tokens": 0,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 0,
        },
        "metadata": {"night": "monday"},
    }
    assert read == made
    assert cancelled.status == "cancelling"
    assert cancelled.cancelling_at is not None
    row = job_of(made.id)
    assert (row.organization_id, row.project_id, row.key_id) == (
        acme.owner.organization_id,
        acme.owner.project_id,
        acme.owner.key_id,
    )
    assert row.output_expires_s == 3600


def test_a_stock_client_takes_a_file_to_its_answers(market: Market, acme: BatchTenant) -> None:
    market.outcomes["text of bad"] = [outcome("unsupported_parameter", 400)]
    content = jsonl(map(line, ["a", "bad", "c"]))

    async def send(client: openai.AsyncOpenAI) -> str:
        file = await client.files.create(file=("in.jsonl", content), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint=CHAT, completion_window="24h"
        )
        return batch.id

    async def fetch(client: openai.AsyncOpenAI) -> tuple[Any, str, str]:
        batch = await client.batches.retrieve(batch_id)
        assert batch.output_file_id is not None
        assert batch.error_file_id is not None
        output = await client.files.content(batch.output_file_id)
        errors = await client.files.content(batch.error_file_id)
        return batch, output.text, errors.text

    batch_id = by_client(acme.tenant.secret, send)
    tend(datetime.now(UTC))
    turn(market)
    tend(datetime.now(UTC))
    batch, output, errors = by_client(acme.tenant.secret, fetch)

    assert (batch.status, batch.model) == ("completed", MODEL)
    assert batch.request_counts.to_dict() == {"total": 3, "completed": 2, "failed": 1}
    answers = {one["custom_id"]: one["response"] for one in map(json.loads, output.splitlines())}
    assert {name: one["body"] for name, one in answers.items()} == {
        name: {"answer": f"answer to text of {name}"} for name in "ac"
    }
    [bad] = map(json.loads, errors.splitlines())
    assert (bad["custom_id"], bad["response"]["status_code"]) == ("bad", 400)
    assert job_of(batch_id).charge_pico == 2 * CHARGE_PICO


def test_a_stock_client_reads_why_a_batch_failed(acme: BatchTenant) -> None:
    batch_id = acme.create(jsonl([line("a"), line("a")]))
    tend(datetime.now(UTC))

    async def story(client: openai.AsyncOpenAI) -> Any:
        return await client.batches.retrieve(batch_id)

    batch = by_client(acme.tenant.secret, story)

    assert batch.status == "failed"
    [error] = batch.errors.data
    assert (error.code, error.line, error.param) == ("duplicate_custom_id", 2, "custom_id")


def test_a_list_is_paged_newest_first_and_a_project_s_own(
    acme: BatchTenant, sibling: BatchTenant, globex: BatchTenant
) -> None:
    made = [acme.create(jsonl([line("a")])) for _ in range(5)]
    sibling.create(jsonl([line("a")]))
    globex.create(jsonl([line("a")]))

    async def story(client: openai.AsyncOpenAI) -> list[str]:
        return [batch.id async for batch in client.batches.list(limit=2)]

    assert by_client(acme.tenant.secret, story) == made[::-1]
    page = acme.door.get("/v1/batches", params={"limit": 2, "after": made[4]}).json()
    assert [one["id"] for one in page["data"]] == made[3:1:-1]
    assert (page["first_id"], page["last_id"], page["has_more"]) == (made[3], made[2], True)
    for wrong in ({"limit": 0}, {"limit": 101}, {"limit": "x"}, {"after": "batch_x"}, {"x": 1}):
        assert acme.door.get("/v1/batches", params=wrong).status_code == 400, wrong


def test_reading_a_batch_any_number_of_times_charges_nothing(acme: BatchTenant) -> None:
    batch_id = acme.running("a", "b")
    answer(batch_id, "a")
    before = job_of(batch_id)

    for _ in range(3):
        acme.read(batch_id)
    answer(batch_id, "b")
    for _ in range(3):
        tend(datetime.now(UTC))
        acme.read(batch_id)
        acme.lines_of(batch_id)

    assert before.charge_pico == CHARGE_PICO
    assert job_of(batch_id).charge_pico == 2 * CHARGE_PICO


def test_what_is_another_s_is_not_there(
    acme: BatchTenant, sibling: BatchTenant, globex: BatchTenant
) -> None:
    batch_id = acme.create(jsonl([line("a")]))
    input_id = acme.upload(jsonl([line("a")]))

    for stranger in (sibling, globex):
        for refused in (
            stranger.door.get(f"/v1/batches/{batch_id}"),
            stranger.door.post(f"/v1/batches/{batch_id}/cancel"),
            stranger.post(input_id),
        ):
            assert refused.status_code == 404
            assert refused.json()["error"]["type"] == "invalid_request_error"
        assert stranger.door.get("/v1/batches").json()["data"] == []
    assert acme.read(batch_id)["status"] == "validating"
    jobs = BulkJob.objects.using("housekeeper")
    assert not jobs.filter(project_id=sibling.owner.project_id).exists()
    assert not jobs.filter(organization_id=globex.owner.organization_id).exists()


def test_what_came_of_another_s_batch_is_not_there(
    acme: BatchTenant, sibling: BatchTenant, globex: BatchTenant
) -> None:
    batch_id = acme.running("a", "b")
    answer(batch_id, "a")
    refuse(batch_id, "b")
    tend(datetime.now(UTC))
    batch = acme.read(batch_id)

    for file_id in (batch["output_file_id"], batch["error_file_id"]):
        for stranger in (sibling, globex):
            for refused in (
                stranger.door.get(f"/v1/files/{file_id}"),
                stranger.door.get(f"/v1/files/{file_id}/content"),
                stranger.door.delete(f"/v1/files/{file_id}"),
                stranger.post(file_id),
            ):
                assert refused.status_code == 404
            assert stranger.door.get("/v1/files").json()["data"] == []
        assert acme.door.get(f"/v1/files/{file_id}/content").status_code == 200


@pytest.mark.parametrize("file_id", ["file-x", "nothing", f"file-{uuid4().hex}", "x" * 128])
def test_an_input_that_was_never_there_is_404(acme: BatchTenant, file_id: str) -> None:
    assert acme.post(file_id).status_code == 404


def test_an_input_is_the_project_s_whole_and_for_a_batch(acme: BatchTenant) -> None:
    for_people = acme.upload(jsonl([line("a")]), purpose="user_data")
    gone = acme.upload(jsonl([line("a")]))
    bulk.delete_file(acme.owner, UUID(gone.removeprefix("file-")))

    refused = acme.post(for_people)

    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input_file_id")
    assert acme.post(gone).status_code == 404


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"endpoint": "/v1/responses"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"metadata": {str(number): "x" for number in range(17)}}, "metadata"),
        ({"metadata": {"k" * 65: "x"}}, "metadata"),
        ({"metadata": {"k": "x" * 513}}, "metadata.k"),
        ({"metadata": {"k": 1}}, "metadata.k"),
        ({"metadata": "text"}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at"}}, "output_expires_after.seconds"),
        (
            {"output_expires_after": {"anchor": "created_at", "seconds": 3599}},
            "output_expires_after.seconds",
        ),
        (
            {"output_expires_after": {"anchor": "created_at", "seconds": 2592001}},
            "output_expires_after.seconds",
        ),
        (
            {"output_expires_after": {"anchor": "now", "seconds": 3600}},
            "output_expires_after.anchor",
        ),
        ({"organization_id": str(uuid4())}, "organization_id"),
    ],
)
def test_what_makes_no_batch_is_named(
    acme: BatchTenant, change: dict[str, Any], param: str
) -> None:
    refused = acme.post(acme.upload(jsonl([line("a")])), **change)

    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == param


def test_the_limits_of_metadata_and_expiry_themselves_are_fine(acme: BatchTenant) -> None:
    metadata = {f"{number:064}": "x" * 512 for number in range(16)}
    batch_id = acme.create(
        jsonl([line("a")]),
        metadata=metadata,
        output_expires_after={"anchor": "created_at", "seconds": 2592000},
    )

    assert acme.read(batch_id)["metadata"] == metadata
    assert acme.read(acme.create(jsonl([line("a")]), metadata=None))["metadata"] is None


def test_a_key_needs_the_scope_for_batches(acme: BatchTenant) -> None:
    key = facade.create_key(
        facade.operator_of(acme.owner.organization_id),
        acme.owner.project_id,
        KeySettings("files only", scopes=frozenset(KeyScope) - {KeyScope.BATCHES}),
    )

    assert Door(key.secret).get("/v1/batches").status_code == 403
    assert Door().get("/v1/batches").status_code == 401


def test_of_fifty_of_one_idempotency_key_one_batch_comes(acme: BatchTenant) -> None:
    file_id = acme.upload(jsonl([line("a")]))
    asked = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h"}
    key = {"idempotency-key": uuid4().hex}

    answers = at_once([lambda: acme.door.post("/v1/batches", json=asked, headers=key)] * 50)

    assert {one.status_code for one in answers} <= {200, 409}
    made = {one.json()["id"] for one in answers if one.status_code == 200}
    assert len(made) == 1
    assert [one["id"] for one in acme.door.get("/v1/batches").json()["data"]] == list(made)
    replayed = acme.door.post("/v1/batches", json=asked, headers=key)
    assert replayed.headers["idempotent-replayed"] == "true"
    assert replayed.json()["id"] in made
    other = {**asked, "metadata": {"another": "body"}}
    assert acme.door.post("/v1/batches", json=other, headers=key).status_code == 422
    owner = acme.owner
    second = facade.issue_key(owner.organization_id, owner.project_id, "b", using="housekeeper")
    another = Door(second.secret).post("/v1/batches", json=asked, headers=key)
    assert another.status_code == 200, "another API key neither reads nor blocks it"
    assert another.json()["id"] not in made


def test_an_idempotency_key_is_free_again_after_a_refusal(acme: BatchTenant) -> None:
    key = {"idempotency-key": uuid4().hex}
    asked = {"input_file_id": "file-x", "endpoint": CHAT, "completion_window": "24h"}

    for _ in range(2):
        refused = acme.door.post("/v1/batches", json=asked, headers=key)
        assert refused.status_code == 404
