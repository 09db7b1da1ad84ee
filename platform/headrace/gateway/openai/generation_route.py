"""Endpoints that ask a model: one order, answered whole or as an SSE stream.

Chat, plain completions and embeddings differ only in how they read a body and write an answer. The
client's disconnect is raced against the engine, so that a closed socket stops the computing within
a step. Reads from a `Completion`; money is none of its business.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
from structlog.contextvars import bind_contextvars

from headrace import errors
from headrace.gateway.admission.admit import Admission
from headrace.gateway.admission.auth import identify
from headrace.gateway.admission.quotes import life_headers
from headrace.gateway.idempotency import checked_key, once
from headrace.gateway.keeping import KeptFraming
from headrace.gateway.openai.answering import Answering, Framing
from headrace.gateway.openai.streaming import stream
from headrace.gateway.orders import Caller, Order
from headrace.gateway.pipeline import Completion, End
from headrace.gateway.request_ids import new_request_id, public_request_id
from headrace.gateway.runtime import GatewayRuntime
from headrace.gateway.settling.charging import Cause
from headrace.gateway.transport.http import (
    ClientGone,
    Receive,
    Scope,
    Send,
    encode_headers,
    header,
    parse_json,
    read_body,
    send_encoded,
    send_error,
    wait_for_disconnect,
)
from inference.contracts import Chunk, TokenCounts
from tenants.contracts import KeyIdentity, KeyScope
from tenants.contracts.retention import IdempotencyScope

THREADED_LOGPROBS_TOKENS = 100
"""An answer that shows more is written in a thread: with 20 alternatives each, 100 take 8 ms."""
THREADED_EMBEDDINGS_BYTES = 256 * 1024
"""The same for larger vectors: as numbers, these take 4 ms."""
RETRY_COUNT_CHARS_MAX = 8
"""The SDK's count of its own retries is logged; more than a number is not."""


@dataclass(frozen=True, slots=True)
class GenerationRoute:
    """One endpoint: what a key needs, how its bodies are read, and how its answers are written.

    Every answer, errors included, carries `x-request-id`.
    """

    needs: KeyScope
    parse: Callable[[Any], Order]
    framing: Callable[[Answering], Framing]

    async def __call__(
        self, runtime: GatewayRuntime, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answers one request."""
        request_id = new_request_id()
        if (retries := header(scope, b"x-stainless-retry-count")) is not None:
            bind_contextvars(retry_count=retries[:RETRY_COUNT_CHARS_MAX])
        headers = {"x-request-id": public_request_id(request_id), "openai-version": "2020-10-01"}
        try:
            identity = await identify(scope, self.needs)
            key = header(scope, b"idempotency-key")
            if key is not None:
                key = checked_key(key)
            asked = _Asked(runtime, identity, request_id, await read_body(receive), headers)
            if key is None:
                await self._serve(asked, receive, send)
                return
            place = IdempotencyScope(
                identity.organization_id, identity.key_id, scope["path"].rstrip("/"), key
            )

            async def run(receive: Receive, send: Send) -> bool:
                return await self._serve(asked, receive, send)

            await once(runtime, place, asked.body, send, run)
        except errors.ApiError as error:
            await send_error(send, error, headers)
        except ClientGone:
            return

    async def _serve(self, asked: "_Asked", receive: Receive, send: Send) -> bool:
        """Answers, with an error if need be; whether that was charged. Raises ClientGone."""
        arrived = time.monotonic()
        completion, kept = None, None
        try:
            order = self.parse(await parse_json(asked.body))
            caller = Caller.interactive(asked.identity, asked.request_id)
            completion = asked.runtime.complete(caller, order)
            framing = self.framing(
                Answering(asked.request_id, int(time.time()), order, asked.runtime.token_texts)
            )
            if asked.identity.prompts_kept_days is not None:
                framing = kept = KeptFraming(framing, asked.identity, asked.request_id, asked.body)
            await _answer(completion, framing, receive, send, asked.headers, arrived)
        except errors.ApiError as error:
            await send_error(send, error, asked.headers)
        finally:
            if kept is not None:
                asked.runtime.spawn(kept.keep())
        return completion is not None and completion.charged


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request, read and identified."""

    runtime: GatewayRuntime
    identity: KeyIdentity
    request_id: UUID
    body: bytes
    headers: dict[str, str]
    """Of the answer; they grow with what is found out."""


async def _answer(
    completion: Completion,
    framing: Framing,
    receive: Receive,
    send: Send,
    headers: dict[str, str],
    arrived: float,
) -> None:
    listener = asyncio.ensure_future(wait_for_disconnect(receive))
    try:
        admission = await _opened(completion, listener)
        headers |= life_headers(admission.quote.offer)
        if admission.limits is not None:
            headers |= admission.limits.headers()
        if completion.order.stream:
            await stream(completion, framing, listener, send, headers)
        else:
            chunks, end = await _whole(completion, listener)
            if end.error is not None:
                raise end.error
            headers["openai-processing-ms"] = str(int((time.monotonic() - arrived) * 1000))
            body = await encoded(framing, chunks, end.counts)
            await send_encoded(send, 200, body, encode_headers(headers))
    finally:
        listener.cancel()
        # However this ended, nobody reads any more; without effect on a request that is over.
        completion.cancel(Cause.CLIENT_GONE)


async def encoded(framing: Framing, chunks: Sequence[Chunk], counts: TokenCounts) -> bytes:
    """The body of a whole answer; a large one is written in a thread."""

    def encode() -> bytes:
        return msgspec.json.encode(framing.whole(chunks, counts))

    large = (
        sum(len(chunk.logprobs) for chunk in chunks) > THREADED_LOGPROBS_TOKENS
        or sum(len(chunk.embedding) for chunk in chunks) > THREADED_EMBEDDINGS_BYTES
    )
    return await asyncio.to_thread(encode) if large else encode()


async def _opened(completion: Completion, listener: "asyncio.Future[None]") -> Admission:
    both: set[asyncio.Future[Any]] = {listener, completion.opening}  # two result types in one wait
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if not completion.opening.done():
        raise ClientGone
    return completion.opening.result()


async def _whole(
    completion: Completion, listener: "asyncio.Future[None]"
) -> tuple[list[Chunk], End]:
    """Waits on one event, which the client's disconnect sets too; no task for either."""
    listener.add_done_callback(lambda _: completion.wake())
    while not completion.ended:
        if listener.done():
            raise ClientGone
        await completion.news()
    return await completion.whole()
