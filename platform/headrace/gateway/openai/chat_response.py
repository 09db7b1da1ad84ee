"""OpenAI's chat completion objects, whole and in chunks. Pure.

Choices of a stream are interleaved by index as they come; each is opened with its role and closed
with an empty delta and its finish reason.
"""

from collections.abc import Sequence
from typing import Any

from headrace.gateway.openai.answering import (
    SYSTEM_FINGERPRINT,
    Answering,
    Payload,
    by_choice,
    finish_reason,
    usage,
)
from headrace.gateway.openai.logprobs import chat_logprobs
from headrace.gateway.request_ids import completion_id
from inference.contracts import Chunk, TokenCounts


class ChatFraming:
    """One answer of `/v1/chat/completions`, or of the socket."""

    def __init__(self, answering: Answering) -> None:
        order = answering.order
        self._choices = order.choices
        self._include_usage = order.include_usage
        self._logprobs = order.sampling is not None and order.sampling.logprobs is not None
        self._texts = answering.token_texts
        self._head = {
            "id": completion_id(answering.request_id, "chatcmpl"),
            "created": answering.created,
            "model": order.model,
            "system_fingerprint": SYSTEM_FINGERPRINT,
        }

    def opening(self) -> list[Payload]:
        """Each choice's role, and no text yet."""
        delta = {"role": "assistant", "content": ""}
        return [self._chunk(choice, delta) for choice in range(self._choices)]

    def part(self, chunk: Chunk) -> list[Payload]:
        """The text of one choice, and its end."""
        payloads = []
        if chunk.text or chunk.logprobs:
            delta = {"content": chunk.text}
            payloads.append(self._chunk(chunk.choice, delta, self._logprobs_of(chunk)))
        if chunk.finish_reason is not None:
            payloads.append(
                self._chunk(chunk.choice, {}, reason=finish_reason(chunk.finish_reason))
            )
        return payloads

    def ending(self, counts: TokenCounts) -> list[Payload]:
        """The usage-only chunk, where `include_usage` asks for it."""
        if not self._include_usage:
            return []
        return [self._object("chat.completion.chunk", choices=[], usage=usage(counts))]

    def whole(self, chunks: Sequence[Chunk], counts: TokenCounts) -> Payload:
        """The unstreamed response."""
        choices = [
            {
                "index": chunk.choice,
                "message": {"role": "assistant", "content": chunk.text, "refusal": None},
                "logprobs": self._logprobs_of(chunk),
                "finish_reason": finish_reason(chunk.finish_reason),
            }
            for chunk in by_choice(chunks)
        ]
        return self._object(
            "chat.completion", choices=choices, usage=usage(counts), service_tier="default"
        )

    def _logprobs_of(self, chunk: Chunk) -> Payload | None:
        return chat_logprobs(chunk.logprobs, self._texts) if self._logprobs else None

    def _chunk(
        self,
        index: int,
        delta: Payload,
        logprobs: Payload | None = None,
        reason: str | None = None,
    ) -> Payload:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        chunk = self._object("chat.completion.chunk", choices=[choice])
        if self._include_usage:
            chunk["usage"] = None
        return chunk

    def _object(self, kind: str, **fields: Any) -> Payload:
        return {**self._head, "object": kind, **fields}
