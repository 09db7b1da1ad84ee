"""Keeping prompts and answers, for organizations that ask for it and for nobody else.

What cannot be written now is not kept: a request never fails or waits for it. Never logs a word of
what it keeps. Called by the doors once an answer has ended.
"""

from collections.abc import Sequence
from uuid import UUID

import msgspec
import structlog
from django.db import DatabaseError, InterfaceError

import tenants.facade
from headrace.gateway.database import in_database
from headrace.gateway.openai.answering import Framing, Payload
from headrace.gateway.transport import sse
from inference.contracts import Chunk, TokenCounts
from tenants.contracts import KeyIdentity

log = structlog.get_logger(__name__)
KEPT_BYTES_MAX = tenants.facade.EXCHANGE_BYTES_MAX


async def keep(identity: KeyIdentity, request_id: UUID, prompt: bytes, answer: bytes) -> None:
    """Keep them for as long as the organization says; nothing, where it says nothing."""
    days = identity.prompts_kept_days
    if days is None:
        return
    try:
        await in_database(
            tenants.facade.keep_exchange,
            identity.organization_id,
            identity.project_id,
            request_id,
            prompt,
            answer,
            days,
        )
    except (DatabaseError, InterfaceError) as error:
        log.warning("exchange not kept", error=type(error).__name__)


class KeptFraming:
    """A framing that remembers what it framed: the object, or the stream's events."""

    def __init__(
        self, framing: Framing, identity: KeyIdentity, request_id: UUID, prompt: bytes
    ) -> None:
        self._framing = framing
        self._identity = identity
        self._request_id = request_id
        self._prompt = prompt
        self._parts: list[bytes] = []
        self._room = KEPT_BYTES_MAX + 1  # so that a longer answer is known to be cut

    def whole(self, chunks: Sequence[Chunk], counts: TokenCounts) -> Payload:
        """As the framing does."""
        payload = self._framing.whole(chunks, counts)
        self._note(msgspec.json.encode(payload))
        return payload

    def opening(self) -> list[Payload]:
        """As the framing does."""
        return self._noted(self._framing.opening())

    def part(self, chunk: Chunk) -> list[Payload]:
        """As the framing does."""
        return self._noted(self._framing.part(chunk))

    def ending(self, counts: TokenCounts) -> list[Payload]:
        """As the framing does."""
        return self._noted(self._framing.ending(counts))

    async def keep(self) -> None:
        """Keep what was answered, if anything was."""
        if self._parts:
            await keep(self._identity, self._request_id, self._prompt, b"".join(self._parts))

    def _noted(self, payloads: list[Payload]) -> list[Payload]:
        if payloads:
            self._note(sse.frames(payloads))
        return payloads

    def _note(self, text: bytes) -> None:
        if self._room > 0:
            self._parts.append(text[: self._room])
            self._room -= len(text)
