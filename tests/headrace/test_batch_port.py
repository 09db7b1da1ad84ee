"""The port of bulk work on the real pipeline and ledger, before an engine that computes nothing."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.test import override_settings
from uuid_utils.compat import uuid7

from batch_jobs.ports import BulkAnswer, BulkOutcome, BulkRequest
from benchmarks.stub_engine import serve_frames
from billing import facade as billing
from headrace.gateway.batch_port import BatchPort
from headrace.standalone.data_folder import DataFolder
from headrace.standalone.seed import seed_offer
from inference.tokenizer.bundle import Bundle, load_bundle
from tenants import facade as tenants
from tests.house import Tenant, new_tenant, wait_until

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
STEP_S = 0.001
HELLO = [{"role": "user", "content": "Hello."}]


@pytest.fixture(scope="module")
def bundle(django_database: DataFolder, bundle_folder: Path) -> Bundle:
    """The served model, for sale."""
    bundle = load_bundle(bundle_folder)
    seed_offer(bundle)
    return bundle


@pytest.fixture
def port(bundle: Bundle, bundle_folder: Path, tmp_path: Path) -> Iterator[BatchPort]:
    """A worker's port whose engine is up."""
    socket = tmp_path / "engine.sock"
    settings = override_settings(ENGINE_SOCKET=socket, MODEL_BUNDLE=bundle_folder)
    with settings, stub_engine(bundle, socket):
        port = BatchPort()
        worker = port.start()
        wait_until(lambda: worker.runtime.engine.connected)
        yield port
        port.close()


@contextmanager
def stub_engine(bundle: Bundle, socket: Path) -> Iterator[None]:
    """On a loop of its own, as it is a process of its own."""
    loop = asyncio.new_event_loop()
    engine = loop.create_task(serve_frames(bundle, socket, STEP_S))

    def serve() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(engine)
        loop.run_until_complete(hung_up())
        loop.close()

    async def hung_up() -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await asyncio.sleep(0)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(engine.cancel)
        thread.join()


def request_of(tenant: Tenant, endpoint: str = CHAT, **body: Any) -> BulkRequest:
    return BulkRequest(
        uuid7(), tenant.organization_id, tenant.project_id, tenant.key_id, endpoint, body
    )


class Taker:
    """Who stores answers, or does not."""

    def __init__(self, stores: bool = True) -> None:
        self.stores = stores
        self.answers: list[BulkAnswer] = []

    async def __call__(self, answer: BulkAnswer) -> bool:
        self.answers.append(answer)
        return self.stores


def run(port: BatchPort, request: BulkRequest, taker: Taker | None = None) -> BulkOutcome:
    outcome = port.run(port.complete(request, taker or Taker())).result(30)
    assert outcome is not None
    return outcome


def held_pico(tenant: Tenant) -> int:
    return billing.balance(tenant.organization_id).held_pico


@pytest.mark.parametrize(
    ("endpoint", "asked", "kind"),
    [
        (CHAT, {"messages": HELLO, "max_tokens": 3}, "chat.completion"),
        (COMPLETIONS, {"prompt": "Hello.", "max_tokens": 3}, "text_completion"),
    ],
)
def test_an_answer_is_what_the_route_would_send(
    port: BatchPort, bundle: Bundle, endpoint: str, asked: dict[str, Any], kind: str
) -> None:
    tenant, taker = new_tenant(), Taker()
    outcome = run(port, request_of(tenant, endpoint, model=bundle.name, **asked), taker)
    (answer,) = taker.answers
    body = json.loads(answer.body)
    assert (body["object"], body["model"]) == (kind, bundle.name)
    assert body["usage"]["completion_tokens"] == answer.completion_tokens == 3
    assert answer.text == " mill mill mill"
    assert outcome.error_code is None
    assert outcome.charge_pico == port.charge_of(tenant.organization_id, outcome.request_id)
    assert outcome.charge_pico > 0
    assert held_pico(tenant) == 0


def test_an_answer_that_nobody_stored_costs_nothing(port: BatchPort, bundle: Bundle) -> None:
    tenant = new_tenant()
    request = request_of(tenant, model=bundle.name, messages=HELLO, max_tokens=3)
    outcome = run(port, request, Taker(stores=False))
    assert (outcome.charge_pico, outcome.retryable, outcome.deferred) == (0, True, False)
    assert port.charge_of(tenant.organization_id, request.request_id) == 0
    assert held_pico(tenant) == 0


def test_a_request_that_is_given_up_is_aborted_and_costs_nothing(
    port: BatchPort, bundle: Bundle
) -> None:
    tenant, taker = new_tenant(), Taker()
    request = request_of(tenant, model=bundle.name, messages=HELLO, max_tokens=5_000)

    async def until_running() -> None:
        async with asyncio.timeout(30):
            while not (await port.load()).running:  # noqa: ASYNC110 - it is the engine's to tell
                await asyncio.sleep(0.01)

    async def give_up() -> None:
        task = asyncio.create_task(port.complete(request, taker))
        await until_running()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    port.run(give_up()).result(30)
    wait_until(lambda: port.charge_of(tenant.organization_id, request.request_id) == 0)
    assert held_pico(tenant) == 0
    assert taker.answers == []


@pytest.mark.parametrize(
    "broken",
    [
        {"messages": "no"},
        {"messages": HELLO, "max_tokens": -1},
        {"messages": HELLO, "stream": True},
        {"messages": HELLO, "model": "unheard-of"},
    ],
)
def test_a_request_refused_for_what_it_is_may_not_be_repeated(
    port: BatchPort, bundle: Bundle, broken: dict[str, Any]
) -> None:
    outcome = run(port, request_of(new_tenant(), **{"model": bundle.name} | broken))
    assert outcome.status_code in (400, 404)
    assert outcome.error_message
    assert not (outcome.retryable or outcome.deferred or outcome.job_wide)


def test_an_endpoint_that_is_not_for_bulk_is_refused(port: BatchPort, bundle: Bundle) -> None:
    outcome = run(port, request_of(new_tenant(), "/v1/models", model=bundle.name))
    assert (outcome.status_code, outcome.retryable) == (400, False)


def test_an_empty_balance_is_the_whole_jobs(port: BatchPort, bundle: Bundle) -> None:
    tenant = new_tenant(credit_pico=0)
    outcome = run(port, request_of(tenant, model=bundle.name, messages=HELLO, max_tokens=3))
    assert (outcome.status_code, outcome.error_code) == (429, "insufficient_quota")
    assert (outcome.retryable, outcome.deferred, outcome.job_wide) == (True, True, True)


def test_a_balance_that_open_holds_take_up_is_the_whole_jobs(
    port: BatchPort, bundle: Bundle
) -> None:
    tenant = new_tenant(credit_pico=0)
    terms = port.terms(tenant.organization_id, tenant.project_id, bundle.name)
    assert terms is not None
    # Enough for one of them, not for two.
    billing.grant_credit(tenant.organization_id, 7_500 * terms.output_micros_per_mtok, "one")
    asked: dict[str, Any] = {"model": bundle.name, "messages": HELLO, "max_tokens": 5_000}
    first = port.run(port.complete(request_of(tenant, **asked), Taker()))
    wait_until(lambda: held_pico(tenant) > 0)
    outcome = run(port, request_of(tenant, **asked))
    assert held_pico(tenant) > 0
    first.cancel()
    wait_until(lambda: held_pico(tenant) == 0)
    assert (outcome.status_code, outcome.error_code) == (429, "insufficient_quota")
    assert (outcome.retryable, outcome.deferred, outcome.job_wide) == (True, True, True)


def test_a_revoked_key_is_the_whole_jobs(port: BatchPort, bundle: Bundle) -> None:
    tenant = new_tenant()
    tenants.revoke_key(tenant.organization_id, tenant.key_id, using="housekeeper")
    outcome = run(port, request_of(tenant, model=bundle.name, messages=HELLO, max_tokens=3))
    assert outcome.status_code == 401
    assert (outcome.deferred, outcome.job_wide) == (True, True)


def test_without_an_engine_nothing_was_tried(
    bundle: Bundle, bundle_folder: Path, tmp_path: Path
) -> None:
    with override_settings(ENGINE_SOCKET=tmp_path / "none.sock", MODEL_BUNDLE=bundle_folder):
        port = BatchPort()
        try:
            assert port.run(port.load()).result(30).connected is False
            outcome = run(port, request_of(new_tenant(), model=bundle.name, messages=HELLO))
        finally:
            port.close()
    assert (outcome.status_code, outcome.deferred, outcome.job_wide) == (503, True, True)


def test_terms_are_those_of_both_tiers(bundle: Bundle) -> None:
    tenant, port = new_tenant(), BatchPort()
    terms = port.terms(tenant.organization_id, tenant.project_id, bundle.name)
    assert terms is not None
    assert terms.public_id == bundle.name
    assert 0 < terms.input_micros_per_mtok < terms.interactive_input_micros_per_mtok
    assert 0 < terms.output_micros_per_mtok < terms.interactive_output_micros_per_mtok
    assert port.terms(tenant.organization_id, tenant.project_id, "unheard-of") is None
    assert port.terms(tenant.organization_id, UUID(int=1), bundle.name) is not None


def test_tokens_are_counted_by_the_models_vocabulary(bundle: Bundle, bundle_folder: Path) -> None:
    with override_settings(MODEL_BUNDLE=bundle_folder):
        counts = BatchPort().count_tokens(["", "mill", "The mill turns a stone. " * 10])
    assert counts[0] <= 1
    assert counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize("stream", [False, True])
def test_refusals_are_the_dialects_own(stream: bool) -> None:
    body = {"model": "any", "messages": HELLO, "stream": stream}
    refusal = BatchPort().refusal(CHAT, body)
    assert (refusal is not None) == stream
