"""What the answers of all OpenAI endpoints have in common: their head, their usage, their ends.

A framing turns what the pipeline says into an endpoint's objects, whole or in chunks; routes and
the socket write what it gives, so that one answer reads the same on every door. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from headrace.gateway.orders import Order
from inference.contracts import Chunk, FinishReason, TokenCounts
from inference.tokenizer.token_texts import TokenTexts

SYSTEM_FINGERPRINT = "headrace"
Payload = dict[str, Any]  # JSON of a foreign shape


@dataclass(frozen=True, slots=True)
class Answering:
    """What a framing must know about the answer it writes."""

    request_id: UUID
    created: int
    order: Order
    token_texts: TokenTexts


class Framing(Protocol):
    """One answer in the shape of one endpoint."""

    def opening(self) -> list[Payload]:
        """What a stream says before its first chunk."""
        ...

    def part(self, chunk: Chunk) -> list[Payload]:
        """What a stream says of one chunk: nothing, if it shows nothing."""
        ...

    def ending(self, counts: TokenCounts) -> list[Payload]:
        """What a stream says after its last chunk."""
        ...

    def whole(self, chunks: Sequence[Chunk], counts: TokenCounts) -> Payload:
        """The unstreamed response; `chunks` holds one for each choice, in any order."""
        ...


def by_choice(chunks: Sequence[Chunk]) -> list[Chunk]:
    """In the order of the choices, which must be all there, once."""
    ordered = sorted(chunks, key=lambda chunk: chunk.choice)
    assert [chunk.choice for chunk in ordered] == list(range(len(ordered))), "a choice is missing"
    return ordered


def finish_reason(reason: FinishReason | None) -> str:
    """OpenAI's word for a regular end; only those reach a client as a finish."""
    assert reason in (FinishReason.STOP, FinishReason.LENGTH), reason
    return reason.value


def usage(counts: TokenCounts) -> Payload:
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
