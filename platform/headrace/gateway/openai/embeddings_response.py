"""OpenAI's embeddings object. Pure.

The engine answers in little-endian float32, which is what base64 carries as it is; as numbers, the
same values are written exactly.
"""

import base64
import struct
from collections.abc import Sequence

import msgspec

from headrace.gateway.openai.answering import Answering, Payload, by_choice
from inference.contracts import Chunk, TokenCounts

FLOAT_BYTES = 4


class EmbeddingsFraming:
    """One answer of `/v1/embeddings`, which is never streamed."""

    def __init__(self, answering: Answering) -> None:
        self._order = answering.order

    def opening(self) -> list[Payload]:
        """Nothing."""
        return []

    def part(self, chunk: Chunk) -> list[Payload]:
        """Nothing."""
        return []

    def ending(self, counts: TokenCounts) -> list[Payload]:
        """Nothing."""
        return []

    def whole(self, chunks: Sequence[Chunk], counts: TokenCounts) -> Payload:
        """The response: one embedding for each input."""
        return {
            "object": "list",
            "data": [
                {
                    "object": "embedding",
                    "index": chunk.choice,
                    "embedding": self._vector(chunk.embedding),
                }
                for chunk in by_choice(chunks)
            ],
            "model": self._order.model,
            "usage": {"prompt_tokens": counts.prompt, "total_tokens": counts.prompt},
        }

    def _vector(self, data: bytes) -> str | msgspec.Raw:
        assert data, "an input without its embedding"
        if self._order.embeddings_as_base64:
            return base64.b64encode(data).decode()
        # As text at once: 2,048 vectors of Python numbers would take 40 MB more.
        return msgspec.Raw(
            msgspec.json.encode(struct.unpack(f"<{len(data) // FLOAT_BYTES}f", data))
        )
