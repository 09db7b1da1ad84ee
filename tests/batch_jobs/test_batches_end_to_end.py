"""Batches through the whole house: the stock client, real workers, the engine and the ledger."""

import json
from typing import Any, Literal
from uuid import UUID

import openai
import pytest
from openai.types import Batch
from openai.types.chat import ChatCompletion

from billing import facade as billing
from billing.contracts import ServiceTier
from tests.house import LiveHouse, Tenant, wait_until

pytestmark = pytest.mark.long
CHAT: Literal["/v1/chat/completions"] = "/v1/chat/completions"
ENDED = {"completed", "failed", "expired", "cancelled"}
BATCH_INPUT_PICO = 25_000
BATCH_CACHED_PICO = 2_500
BATCH_OUTPUT_PICO = 125_000
TIMEOUT_S = 180


def lines(*requests: tuple[str, dict[str, Any]], url: str = CHAT) -> bytes:
    """An input with these bodies."""
    return b"".join(
        json.dumps({"custom_id": name, "method": "POST", "url": url, "body": body}).encode() + b"\n"
        for name, body in requests
    )


def ended(client: openai.OpenAI, batch_id: str) -> Batch:
    """The batch, once it has come to its end."""

    def batch_if_ended() -> Batch | None:
        batch = client.batches.retrieve(batch_id)
        return batch if batch.status in ENDED else None

    batch = wait_until(batch_if_ended, TIMEOUT_S)
    assert batch is not None
    return batch


def read(client: openai.OpenAI, file_id: str | None) -> dict[str, dict[str, Any]]:
    """The lines of a file by custom id, each of which is there once."""
    if file_id is None:
        return {}
    found = [json.loads(line) for line in client.files.content(file_id).text.splitlines()]
    by_id = {line["custom_id"]: line for line in found}
    assert len(by_id) == len(found)
    return by_id


def charged(tenant: Tenant, output: dict[str, dict[str, Any]]) -> int:
    """What the lines' receipts say, each at the batch price, in pico-units."""
    total = 0
    for line in output.values():
        usage = line["response"]["body"]["usage"]
        receipt = billing.receipt(tenant.organization_id, UUID(line["response"]["request_id"]))
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        assert (receipt.state, receipt.tier) == ("posted", ServiceTier.BATCH)
        assert receipt.charge_pico == (
            (usage["prompt_tokens"] - cached) * BATCH_INPUT_PICO
            + cached * BATCH_CACHED_PICO
            + usage.get("completion_tokens", 0) * BATCH_OUTPUT_PICO
        )
        total += receipt.charge_pico
    return total


def test_a_stock_client_uploads_creates_polls_and_downloads(house: LiveHouse) -> None:
    tenant = house.new_tenant()
    client = house.client(tenant.secret)
    before = billing.balance(tenant.organization_id)
    asked = {"model": house.model, "max_tokens": 8}
    content = lines(
        *(
            (f"n{number}", {**asked, "messages": [{"role": "user", "content": f"Say {number}."}]})
            for number in range(4)
        ),
        (
            "too long",
            {**asked, "max_tokens": 10**6, "messages": [{"role": "user", "content": "x"}]},
        ),
    )

    file = client.files.create(file=("night.jsonl", content), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id,
        endpoint=CHAT,
        completion_window="24h",
        metadata={"night": "monday"},
    )
    batch = ended(client, batch.id)

    assert (batch.status, batch.model) == ("completed", house.model)
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 5, "completed": 4, "failed": 1}
    output = read(client, batch.output_file_id)
    assert output.keys() == {"n0", "n1", "n2", "n3"}
    for line in output.values():
        answer = ChatCompletion.model_validate(line["response"]["body"])
        assert answer.choices[0].message.content
        assert answer.usage is not None
    errors = read(client, batch.error_file_id)
    assert errors["too long"]["response"]["status_code"] == 400
    error = errors["too long"]["response"]["body"]["error"]
    assert error["code"] == "context_length_exceeded"
    after = wait_until(lambda: _at_rest(tenant))
    assert after is not None
    charge = charged(tenant, output)
    assert before.posted_pico - after.posted_pico == charge > 0
    assert batch.usage is not None
    assert batch.usage.output_tokens == sum(
        line["response"]["body"]["usage"]["completion_tokens"] for line in output.values()
    )
    house.manage("reconcile")


@pytest.mark.parametrize(
    ("url", "body"),
    [
        ("/v1/completions", {"prompt": "Once upon", "max_tokens": 4}),
        ("/v1/embeddings", {"input": ["water", "mill"]}),
    ],
)
def test_completions_and_embeddings_come_in_batches_too(
    house: LiveHouse, url: Any, body: dict[str, Any]
) -> None:
    tenant = house.new_tenant()
    client = house.client(tenant.secret)
    before = billing.balance(tenant.organization_id)
    content = lines(("a", {"model": house.model, **body}), url=url)
    file = client.files.create(file=("in.jsonl", content), purpose="batch")

    batch = client.batches.create(input_file_id=file.id, endpoint=url, completion_window="24h")
    batch = ended(client, batch.id)

    assert batch.status == "completed"
    output = read(client, batch.output_file_id)
    assert output["a"]["response"]["body"]["object"] in ("text_completion", "list")
    after = wait_until(lambda: _at_rest(tenant))
    assert after is not None
    assert before.posted_pico - after.posted_pico == charged(tenant, output) > 0


def test_a_cancelled_batch_is_paid_for_what_it_had_done(house: LiveHouse) -> None:
    tenant = house.new_tenant()
    client = house.client(tenant.secret)
    before = billing.balance(tenant.organization_id)
    content = lines(
        *(
            (
                f"n{number}",
                {
                    "model": house.model,
                    "max_tokens": 32,
                    "messages": [{"role": "user", "content": f"Tell me about {number}."}],
                },
            )
            for number in range(300)
        )
    )
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")

    def some_done() -> bool:
        counts = client.batches.retrieve(batch.id).request_counts
        return counts is not None and counts.completed > 0

    assert wait_until(some_done, TIMEOUT_S)
    client.batches.cancel(batch.id)
    batch = ended(client, batch.id)

    assert batch.status == "cancelled"
    output, errors = read(client, batch.output_file_id), read(client, batch.error_file_id)
    assert len(output) + len(errors) == 300
    assert not output.keys() & errors.keys()
    assert {line["error"]["code"] for line in errors.values()} == {"batch_cancelled"}
    after = wait_until(lambda: _at_rest(tenant))
    assert after is not None
    assert before.posted_pico - after.posted_pico == charged(tenant, output) > 0
    house.manage("reconcile")


def _at_rest(tenant: Tenant) -> Any:
    """The balance, once nothing is held any more."""
    balance = billing.balance(tenant.organization_id)
    return balance if balance.held_pico == 0 else None
