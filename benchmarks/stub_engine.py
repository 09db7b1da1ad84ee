"""An engine that computes nothing: one answer for everybody, at a fixed pace, behind two doors.

`python -m benchmarks.stub_engine --bundle FOLDER --socket PATH --port N` speaks our frames on the
socket and OpenAI's chat completions, streamed and not, on the port, so that gateways can be
compared by what they cost themselves. Keeps no queue, and its journal in memory only. Called by
`gateway_cost`, by measurements of bulk work and by tests that kill its clients.
"""

import argparse
import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from inference.contracts import (
    Chunk,
    EngineStats,
    Finish,
    FinishReason,
    GenerationRequest,
    ModelLimits,
    TokenCounts,
)
from inference.protocol import (
    PROTOCOL_VERSION,
    Abort,
    Ack,
    Chunks,
    Finished,
    FromEngine,
    Hello,
    Stats,
    StatsRequest,
    Submit,
    encode,
    read_from_client,
)
from inference.tokenizer.bundle import Bundle, load_bundle

WORD = " mill"
TOKEN_ID = 100
STEP_S = 0.02
"""Pause between steps: as long as a token of a small model on one core."""

Message = dict[str, Any]  # ASGI's own shape
Send = Callable[[Message], Awaitable[None]]


@dataclass(slots=True)
class Answer:
    """One request under way."""

    request: GenerationRequest
    done_tokens: int = 0

    @property
    def wanted_tokens(self) -> int:
        """Tokens in its whole answer; an embedding has none."""
        return 0 if self.request.sampling is None else self.request.sampling.max_tokens

    @property
    def has_a_chunk(self) -> bool:
        """Of this step: an answer that is not streamed comes whole, with its last."""
        least = 1 if self.request.stream else self.wanted_tokens
        return 1 <= least <= self.done_tokens <= self.wanted_tokens

    @property
    def counts(self) -> TokenCounts:
        """What has been "computed"."""
        return TokenCounts(sum(map(len, self.request.prompts)), 0, self.done_tokens)


@dataclass(slots=True)
class Journal:
    """Finishes that nobody has acknowledged: what a client that died leaves is told another."""

    connections: "list[Connection]" = field(default_factory=list)
    kept: "dict[str, tuple[Finish, Connection | None]]" = field(default_factory=dict)

    def joined(self, connection: "Connection") -> None:
        """It hears what nobody is there to hear."""
        self.connections.append(connection)
        self._tell([finish for finish, told in self.kept.values() if told is None])

    def left(self, connection: "Connection") -> None:
        """What it had not acknowledged, and what it had not been told, goes to another."""
        self.connections.remove(connection)
        left = [finish for finish, told in self.kept.values() if told is connection]
        left += [_ended(answer, FinishReason.PEER_LOST) for answer in connection.answers.values()]
        connection.answers.clear()
        self.kept |= {finish.request_id: (finish, None) for finish in left}
        self._tell(left)

    def _tell(self, finishes: "list[Finish]") -> None:
        if finishes and self.connections:
            self.connections[-1].tell(finishes)


@dataclass(slots=True, eq=False)
class Connection:
    """One web or worker process: its requests, stepped together as a real engine does."""

    bundle: Bundle
    writer: asyncio.StreamWriter
    step_s: float
    journal: Journal
    answers: dict[str, Answer] = field(default_factory=dict)
    steps: int = 0
    work: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, frame: FromEngine) -> None:
        """Writes one frame."""
        self.writer.write(encode(frame))

    def hear(self, frame: object) -> None:
        """What a client asked."""
        match frame:
            case Submit(requests):
                self.answers |= {request.request_id: Answer(request) for request in requests}
                self.work.set()
            case Abort(request_ids):
                gone = [self.answers.pop(one) for one in request_ids if one in self.answers]
                self._finish(gone, FinishReason.CANCELLED)
            case StatsRequest():
                self.say(Stats(self._stats()))
            case Ack(request_ids):
                for request_id in request_ids:
                    self.journal.kept.pop(request_id, None)
            case _:
                pass

    async def step(self) -> None:
        """A token for everybody, for ever. An unstreamed answer comes whole, with its last step."""
        while True:
            await self.work.wait()
            self.work.clear()
            while self.answers:
                self.steps += 1
                chunks, done = [], []
                for answer in list(self.answers.values()):
                    answer.done_tokens += 1
                    if answer.has_a_chunk:
                        chunks.append(_chunk(answer))
                    if answer.done_tokens >= answer.wanted_tokens:
                        done.append(self.answers.pop(answer.request.request_id))
                if chunks:
                    self.say(Chunks(chunks))
                self._finish(done, FinishReason.LENGTH)
                await self.writer.drain()
                await asyncio.sleep(self.step_s)

    def tell(self, finishes: list[Finish]) -> None:
        """Writes finishes, to be acknowledged."""
        self.journal.kept |= {finish.request_id: (finish, self) for finish in finishes}
        self.say(Finished(finishes))

    def _finish(self, answers: list[Answer], reason: FinishReason) -> None:
        if answers:
            self.tell([_ended(answer, reason) for answer in answers])

    def _stats(self) -> EngineStats:
        return EngineStats(self.steps, len(self.answers), 0, 1, 0, 0, 0, 0, 0, 0, {}, 0, 0.0)


def _chunk(answer: Answer) -> Chunk:
    last = answer.done_tokens == answer.wanted_tokens
    tokens = 1 if answer.request.stream else answer.wanted_tokens
    return Chunk(
        answer.request.request_id,
        WORD * tokens,
        (TOKEN_ID,) * tokens,
        answer.counts,
        finish_reason=FinishReason.LENGTH if last else None,
    )


def _ended(answer: Answer, reason: FinishReason) -> Finish:
    sent = answer.counts if answer.request.stream else TokenCounts()
    return Finish(answer.request.request_id, reason, answer.counts, sent)


async def serve_frames(bundle: Bundle, socket: Path, step_s: float) -> None:
    """Our protocol, on a unix socket."""
    limits = ModelLimits(bundle.context_tokens_max, 1 << 24, bundle.vocab_size, 8)
    journal = Journal()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(bundle, writer, step_s, journal)
        connection.say(Hello(PROTOCOL_VERSION, "stub", bundle.name, bundle.hash, limits))
        journal.joined(connection)
        stepping = asyncio.ensure_future(connection.step())
        try:
            while (frame := await read_from_client(reader)) is not None:
                connection.hear(frame)
        finally:
            stepping.cancel()
            journal.left(connection)
            writer.close()

    server = await asyncio.start_unix_server(connected, str(socket))
    await server.serve_forever()


class OpenAiDoor:
    """The same answers as an OpenAI-compatible server."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Send) -> None:
        """One request; anything but a POST is a health check."""
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        if scope["method"] != "POST":
            await _whole(send, {"status": "ok"})
            return
        asked = msgspec.json.decode(body)
        tokens = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 16)
        if asked.get("stream"):
            await self._stream(send, tokens)
        else:
            await asyncio.sleep(self._step_s * tokens)
            await _whole(send, _completion(tokens))

    async def _stream(self, send: Send, tokens: int) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number in range(tokens):
            last = number + 1 == tokens
            part = {
                **_HEAD,
                "object": "chat.completion.chunk",
                "choices": [
                    {
                        "index": 0,
                        "delta": {"role": "assistant", "content": WORD},
                        "finish_reason": "length" if last else None,
                    }
                ],
            }
            if last:
                part["usage"] = _usage(tokens)
            body = b"data: " + msgspec.json.encode(part) + b"\n\n"
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await asyncio.sleep(self._step_s)
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


_HEAD = {"id": "chatcmpl-stub", "created": 1, "model": "stub"}


def _usage(tokens: int) -> Message:
    return {"prompt_tokens": 20, "completion_tokens": tokens, "total_tokens": 20 + tokens}


def _completion(tokens: int) -> Message:
    message = {"role": "assistant", "content": WORD * tokens}
    choice = {"index": 0, "message": message, "finish_reason": "length"}
    return {**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _usage(tokens)}


async def _whole(send: Send, payload: Message) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode(payload)})


async def _serve(options: argparse.Namespace) -> None:
    config = uvicorn.Config(
        OpenAiDoor(options.step_s), port=options.port, log_level="warning", lifespan="off"
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(uvicorn.Server(config).serve())
        bundle = load_bundle(options.bundle)
        group.create_task(serve_frames(bundle, options.socket, options.step_s))


def main() -> None:
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stub_engine")
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--step-s", type=float, default=STEP_S)
    options = parser.parse_args()
    options.socket.unlink(missing_ok=True)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(options))


if __name__ == "__main__":
    main()
