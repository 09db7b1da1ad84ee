"""Lines of a batch through the real worker, engine and ledger."""

import json

import pytest

from batch_jobs.contracts import Owner
from batch_jobs.files.writing import write_file
from batch_jobs.models import BulkItem, BulkJob
from batch_jobs.waking import wake_pump
from billing import facade as billing
from billing.contracts import ServiceTier
from tests.house import LiveHouse, wait_until

pytestmark = pytest.mark.long
LINES = 20
TIMEOUT_S = 180


def line(number: int, model: str) -> bytes:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"Name a word that begins with {number}."}],
        "max_tokens": 4,
        "temperature": 0,
    }
    if number == LINES - 1:
        body["max_tokens"] = -1
    return json.dumps(
        {"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions", "body": body}
    ).encode()


def test_every_line_is_answered_as_its_route_would_and_charged_at_batch_price(
    house: LiveHouse,
) -> None:
    tenant = house.new_tenant()
    owner = Owner(tenant.organization_id, tenant.project_id, tenant.key_id)
    before = billing.balance(tenant.organization_id)
    lines = [line(number, house.model) for number in range(LINES)]
    file = write_file(owner, "batch", "input.jsonl", [text + b"\n" for text in lines])
    job = BulkJob.objects.using("housekeeper").create(
        organization_id=owner.organization_id,
        project_id=owner.project_id,
        key_id=owner.key_id,
        kind="batch",
        state="in_progress",
        endpoint="/v1/chat/completions",
        input_file_id=file.file_id,
        items_total=LINES,
    )
    offset = 0
    for number, text in enumerate(lines):
        BulkItem.objects.using("housekeeper").create(
            organization_id=owner.organization_id,
            job_id=job.id,
            line=number + 1,
            custom_id=str(number),
            source_id=file.file_id,
            source_offset=offset,
            source_bytes=len(text),
        )
        offset += len(text) + 1
    wake_pump()

    def ended() -> bool:
        job.refresh_from_db(using="housekeeper")
        return job.items_completed + job.items_failed == LINES

    wait_until(ended, TIMEOUT_S)
    items = list(BulkItem.objects.using("housekeeper").filter(job_id=job.id).order_by("line"))
    *done, failed = items
    assert (failed.state, failed.status_code, failed.charge_pico) == ("failed", 400, 0)
    assert "max_tokens" in (failed.error_message or "")
    quote = billing.quote(tenant.organization_id, tenant.project_id, house.model, ServiceTier.BATCH)
    for item in done:
        assert item.state == "done"
        body = json.loads(item.answer or "")
        assert (body["object"], body["model"]) == ("chat.completion", house.model)
        assert body["choices"][0]["message"]["role"] == "assistant"
        assert body["usage"]["prompt_tokens"] == item.prompt_tokens
        assert item.charge_pico == (
            (item.prompt_tokens - item.cached_tokens) * quote.input_micros_per_mtok
            + item.cached_tokens * quote.cached_input_micros_per_mtok
            + item.completion_tokens * quote.output_micros_per_mtok
        )
        assert item.request_id is not None
        receipt = billing.receipt(tenant.organization_id, item.request_id)
        assert receipt.charge_pico == item.charge_pico
    assert job.charge_pico == sum(item.charge_pico for item in items)
    after = billing.balance(tenant.organization_id)
    assert before.posted_pico - after.posted_pico == job.charge_pico
