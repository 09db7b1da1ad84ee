"""OpenAI's chat completion objects, whole and in chunks. Pure.

The SSE route, the WebSocket and the whole response are built from the same pieces, so they cannot
drift apart.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from headrace.gateway.request_ids import completion_id
from inference.contracts import FinishReason, TokenCounts

SYSTEM_FINGERPRINT = "headrace"


@dataclass(frozen=True, slots=True)
class ChatFraming:
    """What all chunks of one answer share."""

    request_id: UUID
    created: int
    model: str
    include_usage: bool

    def opening(self) -> dict[str, Any]:
        """The first chunk: the role, and no text yet."""
        return self._chunk({"role": "assistant", "content": ""}, None)

    def text(self, text: str) -> dict[str, Any]:
        """A chunk that carries text."""
        return self._chunk({"content": text}, None)

    def closing(self, reason: FinishReason) -> dict[str, Any]:
        """The last chunk of the choice: an empty delta and the finish reason."""
        return self._chunk({}, finish_reason(reason))

    def usage(self, counts: TokenCounts) -> dict[str, Any]:
        """The usage-only chunk that `include_usage` asks for."""
        return {**self._head(), "choices": [], "usage": usage(counts)}

    def _head(self) -> dict[str, Any]:
        return {
            "id": completion_id(self.request_id),
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": SYSTEM_FINGERPRINT,
        }

    def _chunk(self, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
        chunk: dict[str, Any] = {
            **self._head(),
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}],
        }
        if self.include_usage:
            chunk["usage"] = None
        return chunk

    def whole(self, text: str, reason: FinishReason, counts: TokenCounts) -> dict[str, Any]:
        """The unstreamed response."""
        return {
            "id": completion_id(self.request_id),
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": None},
                    "logprobs": None,
                    "finish_reason": finish_reason(reason),
                }
            ],
            "usage": usage(counts),
            "service_tier": "default",
            "system_fingerprint": SYSTEM_FINGERPRINT,
        }


def finish_reason(reason: FinishReason) -> str:
    """OpenAI's word for a regular end; only those reach a client as a finish."""
    assert reason in (FinishReason.STOP, FinishReason.LENGTH), reason
    return reason.value


def usage(counts: TokenCounts) -> dict[str, Any]:
    """The usage object; `prompt_tokens` includes the cached ones, as OpenAI counts."""
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.completion,
        "total_tokens": counts.prompt + counts.completion,
        "prompt_tokens_details": {
            "cached_tokens": counts.cached,
            "cache_write_tokens": 0,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
