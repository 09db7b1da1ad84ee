"""What money and engines say to bulk work, on the real pipeline and ledger: prices that rise while
a job runs, quotas of the tenant's own, and refusals that nobody knows."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from batch_jobs import ports
from billing import facade as billing
from billing.contracts import (
    QuotaMetric,
    QuotaPeriod,
    QuotaScope,
    QuotaWanted,
    ServiceTier,
)
from headrace.gateway.batch_port import BatchPort
from headrace.standalone.data_folder import DataFolder
from headrace.standalone.seed import seed_offer
from inference.contracts import Finish, FinishReason, ModelLimits, TokenCounts
from inference.protocol import (
    PROTOCOL_VERSION,
    Finished,
    Hello,
    Submit,
    encode,
    read_from_client,
)
from inference.tokenizer.bundle import Bundle, load_bundle
from tenants.facade import operator_of
from tests.batch_jobs.cast import Tenant as BulkTenant
from tests.batch_jobs.pump_cast import check_totals
from tests.batch_jobs.scripted_pipeline import pump_of
from tests.batch_jobs.summary_cast import (
    SUMMARIES,
    SummaryTenant,
    check_books,
    document,
    items_of,
    job_of,
    tend_now,
)
from tests.headrace.door import Door
from tests.headrace.test_batch_port import HELLO, held_pico, request_of, run, stub_engine
from tests.house import Tenant, new_tenant, wait_until

DOCUMENTS = 6
TOKENS_MAX = 16
DEARER = 5


@pytest.fixture
def bundle(queue: None, django_database: DataFolder, bundle_folder: Path) -> Bundle:
    """The served model, for sale."""
    bundle = load_bundle(bundle_folder)
    seed_offer(bundle)
    return bundle


@contextmanager
def worker_of(bundle_folder: Path, socket: Path) -> Iterator[BatchPort]:
    """A worker's port on the engine behind the socket, while the block runs."""
    real, port = ports._pipeline_port, BatchPort()
    with override_settings(ENGINE_SOCKET=socket, MODEL_BUNDLE=bundle_folder):
        ports.provide_pipeline_port(port)
        try:
            worker = port.start()
            wait_until(lambda: worker.runtime.engine.connected)
            yield port
        finally:
            port.close()
            ports._pipeline_port = real


@pytest.fixture
def port(bundle: Bundle, bundle_folder: Path, tmp_path: Path) -> Iterator[BatchPort]:
    """A worker's port whose engine is up."""
    socket = tmp_path / "engine.sock"
    with stub_engine(bundle, socket), worker_of(bundle_folder, socket) as port:
        yield port


def customer() -> tuple[Tenant, SummaryTenant]:
    """Somebody with credit, and his door."""
    tenant = new_tenant()
    ids = (tenant.organization_id, tenant.project_id, tenant.key_id)
    return tenant, SummaryTenant(BulkTenant(*ids, tenant.secret), Door(tenant.secret))


def pump(port: BatchPort) -> None:
    """Turns of a worker, until there is nothing to do."""

    async def turns() -> None:
        before = asyncio.all_tasks()
        worker = pump_of(port)  # type: ignore[arg-type]  # which is typed for its script
        while await worker.turn():
            pass
        # What keeps leases sleeps on; the worker ends.
        for task in asyncio.all_tasks() - before:
            task.cancel()

    port.run(turns()).result(60)


def ready(door: SummaryTenant, bundle: Bundle) -> str:
    """The id of a job over some documents, read and not started."""
    texts = [document(str(number), f"The mill number {number}.") for number in range(DOCUMENTS)]
    made = door.post(
        input_file_ids=[door.upload(texts)], model=bundle.name, tokens_max=TOKENS_MAX, start=False
    )
    tend_now()
    summary_id: str = made.json()["id"]
    assert door.read(summary_id)["status"] == "ready"
    return summary_id


def set_budget(door: SummaryTenant, summary_id: str, budget_pico: int) -> dict[str, Any]:
    """The job with another budget."""
    budget = billing.decimal_string(budget_pico)
    answered = door.door.patch(f"{SUMMARIES}/{summary_id}", json={"budget": budget})
    assert answered.status_code == 200, answered.text
    shown: dict[str, Any] = answered.json()
    return shown


def test_a_budget_holds_though_prices_rise_after_reading(port: BatchPort, bundle: Bundle) -> None:
    tenant, door = customer()
    before_pico = billing.balance(tenant.organization_id).posted_pico
    summary_id = ready(door, bundle)
    budget_pico = sum(item.bound_pico for item in items_of(summary_id))
    set_budget(door, summary_id, budget_pico)
    quote = billing.quote(tenant.organization_id, tenant.project_id, bundle.name, ServiceTier.BATCH)
    for token_class, micros in (
        ("input", quote.input_micros_per_mtok),
        ("cached_input", quote.cached_input_micros_per_mtok),
        ("output", quote.output_micros_per_mtok),
    ):
        billing.set_price(
            *(bundle.name, ServiceTier.BATCH, token_class, micros * DEARER),
            organization_id=tenant.organization_id,
        )
    door.act("start", summary_id)
    pump(port)
    paused = door.read(summary_id)
    charged_pico = check_totals(job_of(summary_id).id).charge_pico

    assert (paused["status"], paused["pause_reason"]) == ("paused", "budget")
    assert 0 < paused["documents"]["completed"] < DOCUMENTS
    assert 0 < charged_pico <= budget_pico
    assert held_pico(tenant) == 0
    waiting = [item for item in items_of(summary_id) if item.state == "queued"]
    assert all((item.attempts, item.charge_pico) == (0, 0) for item in waiting)

    higher = set_budget(door, summary_id, DEARER * budget_pico)
    pump(port)
    tend_now()
    completed = door.read(summary_id)
    charged_pico = job_of(summary_id).charge_pico

    assert higher["status"] == "in_progress"
    assert (completed["status"], completed["documents"]["completed"]) == ("completed", DOCUMENTS)
    assert charged_pico <= DEARER * budget_pico
    assert before_pico - billing.balance(tenant.organization_id).posted_pico == charged_pico
    check_books(summary_id)


def test_a_request_that_may_cost_more_than_its_bound_is_not_held(
    port: BatchPort, bundle: Bundle
) -> None:
    tenant = new_tenant()
    request = request_of(tenant, model=bundle.name, messages=HELLO, max_tokens=3)
    refused = run(port, replace(request, bound_pico=1))
    assert (refused.charge_pico, refused.deferred, refused.job_wide) == (0, True, False)
    assert refused.bound_pico is not None
    assert held_pico(tenant) == 0
    assert port.charge_of(tenant.organization_id, request.request_id) == 0
    less = run(port, replace(request, bound_pico=refused.bound_pico - 1))
    done = run(port, replace(request, bound_pico=refused.bound_pico))
    assert less.bound_pico == refused.bound_pico
    assert done.error_code is None
    assert 0 < done.charge_pico <= refused.bound_pico


@pytest.mark.parametrize(
    ("scope", "is_job_wide"), [(QuotaScope.ORGANIZATION, True), (QuotaScope.END_USER, False)]
)
def test_a_quota_of_the_tenants_says_when_it_resets(
    port: BatchPort, bundle: Bundle, scope: QuotaScope, is_job_wide: bool
) -> None:
    tenant = new_tenant()
    limit(tenant, scope)
    asked = request_of(tenant, model=bundle.name, messages=HELLO, max_tokens=3, user="someone")
    refused = run(port, asked)
    assert (refused.status_code, refused.error_code) == (429, "insufficient_quota")
    assert (refused.deferred, refused.job_wide) == (True, is_job_wide)
    assert refused.resets_in_s is not None
    assert 0 < refused.resets_in_s <= 25 * 3600


def test_a_summary_waits_for_its_tenants_quota(port: BatchPort, bundle: Bundle) -> None:
    tenant, door = customer()
    summary_id = ready(door, bundle)
    limit(tenant, QuotaScope.ORGANIZATION)
    door.act("start", summary_id)
    pump(port)
    job = job_of(summary_id)

    assert (job.state, job.pause_reason) == ("in_progress", "")
    assert job.in_progress_at is not None
    assert job.retry_at > job.in_progress_at
    assert {(item.state, item.attempts) for item in items_of(summary_id)} == {("queued", 0)}


@pytest.mark.parametrize(
    ("code", "is_an_attempt"),
    [("queue_full", False), ("draining", False), ("unheard_of", True), (None, True)],
)
def test_what_an_engine_refuses_for_reasons_unheard_of_is_an_attempt(
    bundle: Bundle, bundle_folder: Path, tmp_path: Path, code: str | None, is_an_attempt: bool
) -> None:
    socket, tenant = tmp_path / "engine.sock", new_tenant()
    with refusing_engine(bundle, socket, code), worker_of(bundle_folder, socket) as port:
        outcome = run(port, request_of(tenant, model=bundle.name, messages=HELLO, max_tokens=3))
    assert (outcome.retryable, outcome.deferred) == (True, not is_an_attempt)
    assert held_pico(tenant) == 0


def limit(tenant: Tenant, scope: QuotaScope) -> None:
    """Less a day than any request takes."""
    billing.set_quota(
        operator_of(tenant.organization_id),
        QuotaWanted(scope, QuotaMetric.TOKENS, QuotaPeriod.DAY, 1),
        using="housekeeper",
    )


@contextmanager
def refusing_engine(bundle: Bundle, socket: Path, code: str | None) -> Iterator[None]:
    """Takes nothing, and says always the same why; on a loop of its own."""
    limits = ModelLimits(bundle.context_tokens_max, 1 << 24, bundle.vocab_size, 8)
    none = TokenCounts()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = Hello(PROTOCOL_VERSION, "refusing", bundle.name, bundle.hash, limits)
        writer.write(encode(hello))
        with suppress(ConnectionError):
            while (frame := await read_from_client(reader)) is not None:
                if isinstance(frame, Submit):
                    refused = [
                        Finish(
                            request.request_id, FinishReason.REFUSED, none, none, error_code=code
                        )
                        for request in frame.requests
                    ]
                    writer.write(encode(Finished(refused)))
        writer.close()

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_unix_server(connected, str(socket)))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(ended(server), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def ended(server: asyncio.Server) -> None:
    """Nothing of it runs any more."""
    server.close()
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*rest, return_exceptions=True)
