"""What a dialect makes of a request body: one order, the same for every route and tier."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from billing.contracts import ServiceTier
from inference.contracts import SamplingParams
from inference.tokenizer.prompt import ChatMessage
from tenants.contracts import NO_RULES, KeyIdentity, KeyRules, MinuteLimits


@dataclass(frozen=True, slots=True)
class Conversation:
    """A prompt that the model's chat template writes."""

    messages: tuple[ChatMessage, ...]


@dataclass(frozen=True, slots=True)
class TokenIds:
    """A prompt that came as token ids, each not below 0."""

    ids: tuple[int, ...]


Prompt = Conversation | str | TokenIds
"""A string is plain text: nothing in it is special."""


@dataclass(frozen=True, slots=True)
class Blame:
    """Which field of the body a refusal names, where the dialect alone cannot judge."""

    prompt: str
    max_tokens: str = "max_tokens"
    grammar: str = "response_format"


@dataclass(frozen=True, slots=True)
class Order:
    """A validated request, before prices, limits and tokens are known.

    `sampling` None asks for the embedding of each prompt. Its `max_tokens` is what was asked for,
    if anything was: `max_tokens_asked` False means as much as the model and the context allow.
    `seed_asked` False means that a seed is drawn. `dimensions` is the size of embedding asked for,
    None for the model's own.
    """

    model: str
    prompts: tuple[Prompt, ...]
    sampling: SamplingParams | None
    blame: Blame
    choices: int = 1
    max_tokens_asked: bool = True
    seed_asked: bool = False
    stream: bool = False
    include_usage: bool = False
    dimensions: int | None = None
    embeddings_as_base64: bool = False
    end_user: str = ""
    """Whom the tenant serves with this request; '' is nobody known."""
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def sequences(self) -> int:
        """Answers to compute."""
        return len(self.prompts) * self.choices


@dataclass(frozen=True, slots=True)
class CallerLimits:
    """The minute limits of everybody whose minute a request takes part of."""

    organization: MinuteLimits
    project: MinuteLimits
    key: MinuteLimits
    end_user: MinuteLimits


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose account a request runs, and under which tier.

    Bulk work carries no minute limits: its pump bounds it; balance and quotas hold. What is held
    for it, which is the most it can be charged, is at most `bound_pico`.
    """

    request_id: UUID
    organization_id: UUID
    project_id: UUID
    key_id: UUID
    tier: ServiceTier
    limits: CallerLimits | None
    rules: KeyRules = NO_RULES
    bound_pico: int | None = None

    @classmethod
    def interactive(cls, identity: KeyIdentity, request_id: UUID) -> "Caller":
        """A caller who came with an API key and waits for the answer."""
        limits = CallerLimits(
            MinuteLimits(
                requests_max=identity.requests_per_minute_max,
                tokens_max=identity.tokens_per_minute_max,
                input_tokens_max=identity.input_tokens_per_minute_max,
                output_tokens_max=identity.output_tokens_per_minute_max,
                concurrent_max=identity.concurrent_requests_max,
            ),
            identity.project_limits,
            identity.key_limits,
            identity.end_user_limits,
        )
        return cls(
            request_id,
            identity.organization_id,
            identity.project_id,
            identity.key_id,
            ServiceTier.INTERACTIVE,
            limits,
            identity.rules,
        )
