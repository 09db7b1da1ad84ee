"""What a client is handed of an answer that breaks: what it is charged for, and no more.

A completion on the real books, with an engine played by the test, so that the answer can run
ahead of a reader that has stopped.
"""

import asyncio
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
import redis.asyncio
from django.conf import settings

from billing.contracts import ServiceTier
from headrace.gateway.admission.quotes import QuoteCache
from headrace.gateway.admission.rate_limits import RateLimiter
from headrace.gateway.orders import Blame, Caller, Order
from headrace.gateway.pipeline import Completion, End
from headrace.gateway.services import Services
from inference.client.native import EngineClient
from inference.client.stream import EngineStream
from inference.contracts import (
    Chunk,
    Finish,
    FinishReason,
    GenerationRequest,
    ModelLimits,
    RefusalCode,
    SamplingParams,
    TokenCounts,
)
from inference.protocol import PROTOCOL_VERSION, Hello
from inference.tokenizer.bundle import load_bundle
from inference.tokenizer.prompt import PromptEncoder
from tests import books
from tests.billing.cast import make_offer
from tests.house import Tenant, new_tenant

COMPUTED = 400


class PlayedEngine:
    """An engine whose answers the test writes."""

    connected = True

    def __init__(self, model: str) -> None:
        self.hello = Hello(PROTOCOL_VERSION, "e", model, "", ModelLimits(1000, 1000, 49152, 576))
        self.stream: EngineStream | None = None

    def submit(self, request: GenerationRequest) -> EngineStream:
        self.stream = EngineStream(request.request_id, lambda _: None)
        return self.stream

    def ack(self, request_ids: list[str]) -> None:
        pass


def make_services(engine: PlayedEngine, bundle_folder: Path) -> Services:
    return Services(
        engine=cast("EngineClient", engine),
        encoder=PromptEncoder(load_bundle(bundle_folder)),
        limiter=RateLimiter(redis.asyncio.Redis.from_url(settings.REDIS_URL)),
        quotes=QuoteCache(),
        holds=set(),
        spawn=cast("Any", asyncio.ensure_future),
        moved=lambda _: None,
    )


def interactive(tenant: Tenant) -> Caller:
    return Caller(
        uuid4(),
        tenant.organization_id,
        tenant.project_id,
        tenant.key_id,
        ServiceTier.INTERACTIVE,
        limits=None,
    )


@pytest.mark.parametrize(
    ("end", "shown_tokens"),
    [
        ((FinishReason.TIMED_OUT, None), 1),
        ((FinishReason.ERROR, None), 1),
        ((FinishReason.ERROR, RefusalCode.INVALID_GRAMMAR), COMPUTED),
        (None, 1),
    ],
    ids=["timed_out", "failed", "grammar_leads_nowhere", "engine_lost"],
)
def test_a_reader_that_is_behind_gets_what_is_charged_and_no_more(
    end: tuple[FinishReason, RefusalCode | None] | None,
    shown_tokens: int,
    django_database: object,
    bundle_folder: Path,
) -> None:
    tenant = new_tenant()
    engine = PlayedEngine(make_offer(f"played-{uuid4().hex[:12]}", 1, 1, 1))
    order = Order(engine.hello.model, ("Hello",), SamplingParams(500), Blame("prompt"), stream=True)

    async def shown() -> tuple[list[int], End]:
        completion = Completion(make_services(engine, bundle_folder), interactive(tenant), order)
        running = asyncio.ensure_future(completion.run())
        await completion.opened()
        stream = engine.stream
        assert stream is not None
        ids: list[int] = []
        for token in range(COMPUTED):
            counts = TokenCounts(1, 0, token + 1)
            stream.received_chunk(Chunk(stream.request_id, "t", (token,), counts))
            if token == 0:  # the only one that the reader takes before the end
                first = await completion.next_event()
                assert isinstance(first, Chunk)
                ids += first.token_ids
        if end is None:
            stream.connection_lost()
        else:
            reason, code = end
            counts = TokenCounts(1, 0, COMPUTED)
            stream.received_finish(
                Finish(stream.request_id, reason, counts, counts, error_code=code)
            )
        await running
        while isinstance(event := await completion.next_event(), Chunk):
            ids += event.token_ids
        return ids, event

    ids, ending = asyncio.run(shown())

    assert ids == list(range(shown_tokens))
    assert ending.error is not None
    (event,) = books.events(tenant)
    assert event["output_tokens"] == shown_tokens
