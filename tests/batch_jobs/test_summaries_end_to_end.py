"""Bulk summaries through the real worker, engine and ledger."""

import io
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from batch_jobs.contracts import SummaryItem, SummaryJob
from batch_jobs.facade import create_summary_job, read_items, read_job
from billing import facade as billing
from billing.contracts import ServiceTier
from tests.house import LiveHouse, Tenant, wait_until

TEXTS = {
    "mill": "A headrace is the channel that leads water to a mill wheel. The wheel turns a stone.",
    "bees": "Bees collect nectar from flowers. In the hive they turn it into honey for the winter.",
    "moon": "The Moon circles the Earth in about a month and pulls the tides up and down.",
}
BATCH_INPUT_PICO = 25_000
BATCH_CACHED_PICO = 2_500
BATCH_OUTPUT_PICO = 125_000
JOB_TIMEOUT_S = 180


def submit(tenant: Tenant, model: str, documents: Sequence[tuple[str, str]]) -> UUID:
    return create_summary_job(
        tenant.organization_id,
        tenant.project_id,
        tenant.key_id,
        documents,
        model=model,
        documents_max=len(documents),
    ).job_id


def items_of(tenant: Tenant, job_id: UUID) -> list[SummaryItem]:
    return list(read_items(tenant.organization_id, job_id))


def completed(tenant: Tenant, job_id: UUID) -> SummaryJob:
    def job_if_done() -> SummaryJob | None:
        job = read_job(tenant.organization_id, job_id)
        return job if job.state == "completed" else None

    job = wait_until(job_if_done, JOB_TIMEOUT_S)
    assert job is not None
    return job


def test_three_texts_are_summarised_at_batch_price(house: LiveHouse, tmp_path: Path) -> None:
    tenant = house.new_tenant()
    before = billing.balance(tenant.organization_id)
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(f'{{"id": "{name}", "text": "{TEXTS[name]}"}}\n' for name in TEXTS))
    out, progress = io.StringIO(), io.StringIO()
    call_command(
        *("summarize", str(file), "--key", tenant.secret, "--model", house.model),
        *("--timeout-s", str(JOB_TIMEOUT_S)),
        stdout=out,
        stderr=progress,
    )

    assert out.getvalue().splitlines()[-1].startswith("3 of 3 summarised")
    job_id = UUID(progress.getvalue().split()[1].rstrip(":"))
    items = items_of(tenant, job_id)
    assert [item.custom_id for item in items] == list(TEXTS)
    for item in items:
        assert item.summary
        assert item.summary in out.getvalue()
        assert item.charge_pico == (
            (item.prompt_tokens - item.cached_tokens) * BATCH_INPUT_PICO
            + item.cached_tokens * BATCH_CACHED_PICO
            + item.completion_tokens * BATCH_OUTPUT_PICO
        )
        assert item.request_id is not None
        receipt = billing.receipt(tenant.organization_id, item.request_id)
        assert (receipt.state, receipt.tier) == ("posted", ServiceTier.BATCH)
        assert receipt.charge_pico == item.charge_pico
    after = billing.balance(tenant.organization_id)
    job = read_job(tenant.organization_id, job_id)
    assert job.charge_pico == sum(item.charge_pico for item in items)
    assert before.posted_pico - after.posted_pico == job.charge_pico
    assert after.held_pico == 0


def test_a_killed_worker_loses_no_item_and_charges_none_twice(
    own_house: Callable[..., LiveHouse],
) -> None:
    house = own_house(HEADRACE_BATCH_PUMP_S="1", HEADRACE_BATCH_CLAIM_MAX="3")
    tenant = house.new_tenant()
    before = billing.balance(tenant.organization_id)
    documents = [(f"doc-{number}", list(TEXTS.values())[number % 3]) for number in range(9)]
    job_id = submit(tenant, house.model, documents)
    wait_until(
        lambda: (
            house.metrics().get("vllm:num_requests_running", 0) > 0
            and {"leased", "done"} <= {item.state for item in items_of(tenant, job_id)}
        ),
        JOB_TIMEOUT_S,
    )
    house.kill("worker", number=signal.SIGKILL)
    lost = {
        item.custom_id: item.request_id
        for item in items_of(tenant, job_id)
        if item.state in ("leased", "queued") and item.request_id is not None
    }
    assert lost, "the kill came too late to prove anything"
    house.start("worker")
    job = completed(tenant, job_id)

    assert (job.items_completed, job.items_failed) == (len(documents), 0)
    items = items_of(tenant, job_id)
    assert {item.state for item in items} == {"done"}
    wait_until(lambda: billing.balance(tenant.organization_id).held_pico == 0)
    after = billing.balance(tenant.organization_id)
    assert job.charge_pico == sum(item.charge_pico for item in items)
    assert before.posted_pico - after.posted_pico == job.charge_pico
    for item in items:
        assert item.request_id is not None
        receipt = billing.receipt(tenant.organization_id, item.request_id)
        assert receipt.charge_pico == item.charge_pico
    rerun = {item.custom_id: item.request_id for item in items if item.custom_id in lost}
    for custom_id, request_id in lost.items():
        assert rerun[custom_id] != request_id
        assert billing.receipt(tenant.organization_id, request_id).charge_pico == 0


def test_a_tenant_without_credit_is_told_so_for_each_document(
    house: LiveHouse, tmp_path: Path
) -> None:
    tenant = house.new_tenant(credit_pico=0)
    file = tmp_path / "texts.jsonl"
    file.write_text('{"id": "mill", "text": "A mill."}\n')
    out = io.StringIO()

    with pytest.raises(CommandError, match="1 of 1 documents failed"):
        call_command(
            *("summarize", str(file), "--key", tenant.secret, "--model", house.model),
            *("--timeout-s", str(JOB_TIMEOUT_S)),
            stdout=out,
            stderr=io.StringIO(),
        )
    assert "mill: FAILED insufficient_quota" in out.getvalue()
