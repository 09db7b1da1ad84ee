"""What a dialect makes of a request body: one order, the same for every route and tier."""

from dataclasses import dataclass
from uuid import UUID

from billing.contracts import ServiceTier
from inference.tokenizer.prompt import ChatMessage
from tenants.contracts import KeyIdentity


@dataclass(frozen=True, slots=True)
class ChatOrder:
    """A validated chat completion, before prices, limits and tokens are known.

    `max_tokens` None means as much as the model and the context allow. `seed` None means that one
    is drawn. `max_tokens_param` is the field to blame when the two do not fit the context.
    """

    model: str
    messages: tuple[ChatMessage, ...]
    max_tokens: int | None = None
    max_tokens_param: str = "max_completion_tokens"
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    stream: bool = False
    include_usage: bool = False


@dataclass(frozen=True, slots=True)
class MinuteLimits:
    """What an organization may ask for in any sixty seconds, and at once."""

    requests_max: int
    tokens_max: int
    concurrent_max: int


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose account a request runs, and under which tier.

    Bulk work carries no minute limits: its pump bounds it; balance and daily quota hold.
    """

    request_id: UUID
    organization_id: UUID
    project_id: UUID
    key_id: UUID
    tier: ServiceTier
    limits: MinuteLimits | None

    @classmethod
    def interactive(cls, identity: KeyIdentity, request_id: UUID) -> "Caller":
        """A caller who came with an API key and waits for the answer."""
        limits = MinuteLimits(
            identity.requests_per_minute_max,
            identity.tokens_per_minute_max,
            identity.concurrent_requests_max,
        )
        return cls(
            request_id,
            identity.organization_id,
            identity.project_id,
            identity.key_id,
            ServiceTier.INTERACTIVE,
            limits,
        )
