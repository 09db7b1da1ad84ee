"""OpenAI's plain completion objects, whole and in chunks. Pure but for its text offsets.

A choice's index is its prompt's number times `n` plus its own, as OpenAI numbers them.
"""

from collections import defaultdict
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
from headrace.gateway.openai.logprobs import LegacyLogprobs
from headrace.gateway.request_ids import completion_id
from inference.contracts import Chunk, TokenCounts


class CompletionsFraming:
    """One answer of `/v1/completions`."""

    def __init__(self, answering: Answering) -> None:
        order = answering.order
        alternatives = None if order.sampling is None else order.sampling.logprobs
        self._include_usage = order.include_usage
        self._logprobs = alternatives is not None
        self._of_choice: defaultdict[int, LegacyLogprobs] = defaultdict(
            lambda: LegacyLogprobs(answering.token_texts, alternatives or 0)
        )
        self._head = {
            "id": completion_id(answering.request_id, "cmpl"),
            "object": "text_completion",
            "created": answering.created,
            "model": order.model,
            "system_fingerprint": SYSTEM_FINGERPRINT,
        }

    def opening(self) -> list[Payload]:
        """Nothing: the first text opens a choice."""
        return []

    def part(self, chunk: Chunk) -> list[Payload]:
        """The text of one choice, with its finish reason in the last one."""
        if not (chunk.text or chunk.logprobs or chunk.finish_reason):
            return []
        payload = self._object(choices=[self._choice(chunk)])
        if self._include_usage:
            payload["usage"] = None
        return [payload]

    def ending(self, counts: TokenCounts) -> list[Payload]:
        """The usage-only chunk, where `include_usage` asks for it."""
        return [self._object(choices=[], usage=usage(counts))] if self._include_usage else []

    def whole(self, chunks: Sequence[Chunk], counts: TokenCounts) -> Payload:
        """The unstreamed response."""
        choices = [self._choice(chunk) for chunk in by_choice(chunks)]
        assert all(choice["finish_reason"] for choice in choices), "a choice without an end"
        return self._object(choices=choices, usage=usage(counts))

    def _choice(self, chunk: Chunk) -> Payload:
        reason = chunk.finish_reason
        return {
            "index": chunk.choice,
            "text": chunk.text,
            "logprobs": self._of_choice[chunk.choice].of(chunk.logprobs)
            if self._logprobs
            else None,
            "finish_reason": None if reason is None else finish_reason(reason),
        }

    def _object(self, **fields: Any) -> Payload:
        return {**self._head, **fields}
