"""One request's money: reserved, settled, shown on a receipt."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from billing.contracts.counts import UsageCounts
from billing.contracts.errors import BillingError
from billing.contracts.prices import Quote, ServiceTier
from billing.contracts.quotas import QuotaInTheWay


@dataclass(frozen=True, slots=True)
class HoldRequest:
    """Reserve money and quota for one request before it reaches an engine.

    `request_id` is the hold's id and the gate of exactly-once. The amount is the most the request
    can cost: prompt tokens at the dearer of input and cached price, plus output tokens at theirs.
    """

    request_id: UUID
    organization_id: UUID
    project_id: UUID
    key_id: UUID
    quote: Quote
    model_asked: str
    prompt_tokens: int
    output_tokens_max: int
    end_user: str = ""
    """Whom the tenant serves with it, as the tenant calls them; '' is nobody known."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """The request's metadata; what the organization reports costs by is kept."""


class HoldRefusal(enum.StrEnum):
    """Why a hold was refused. A refused hold left nothing behind."""

    KEY_REVOKED = "key_revoked"
    PROJECT_ARCHIVED = "project_archived"
    ORGANIZATION_SUSPENDED = "organization_suspended"
    INSUFFICIENT_QUOTA = "insufficient_quota"
    """The prepaid balance does not cover the amount."""
    QUOTA_EXCEEDED = "quota_exceeded"
    """A quota of the tenant's own is used up: `HoldOutcome.quota` says which."""
    DUPLICATE = "duplicate"
    """A hold of this id exists already."""
    STALE_QUOTE = "stale_quote"
    """The prices quoted are not, or no longer, those of the catalog: quote again."""


@dataclass(frozen=True, slots=True)
class HoldOutcome:
    """The answer to one HoldRequest; `refusal` is None when the hold stands."""

    request_id: UUID
    refusal: HoldRefusal | None
    amount_pico: int
    quota: QuotaInTheWay | None = None
    """With QUOTA_EXCEEDED: of several in the way, the one that is so longest."""


class UsageSource(enum.StrEnum):
    """Whether counts were measured by an engine or are our estimate after a loss."""

    MEASURED = "measured"
    ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a request came to. Posting it charges min(cost, hold) exactly once.

    Whoever knows the tenant says so in `organization_id`, and a hold of another tenant is left
    alone; a finish from an engine's journal knows none, and its hold does.
    """

    request_id: UUID
    counts: UsageCounts
    finish_reason: str
    model_served: str
    source: UsageSource = UsageSource.MEASURED
    queue_ms: int = 0
    prefill_ms: int = 0
    decode_ms: int = 0
    organization_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer to one Settlement; `posted` is False when the hold was closed before (replays)."""

    request_id: UUID
    posted: bool
    charge_pico: int


@dataclass(frozen=True, slots=True)
class LedgerLeg:
    """One signed entry of the transaction that a request caused."""

    account_kind: str
    amount_pico: int


@dataclass(frozen=True, slots=True)
class Correction:
    """What repricing made of a charge: `charged_pico` moved on the balance, negative is credit."""

    made_at: datetime
    reason: str
    old_pico: int
    new_pico: int
    charged_pico: int
    written_off_pico: int
    ledger_transaction_id: UUID


@dataclass(frozen=True, slots=True)
class Receipt:
    """Everything one request was held, counted and charged for."""

    request_id: UUID
    project_id: UUID
    key_id: UUID
    state: str
    """open (still held), posted or voided."""
    tier: ServiceTier
    currency: str
    model_asked: str
    model_served: str | None
    counts: UsageCounts
    input_micros_per_mtok: int
    cached_input_micros_per_mtok: int
    output_micros_per_mtok: int
    held_pico: int
    charge_pico: int
    finish_reason: str | None
    source: UsageSource | None
    queue_ms: int
    prefill_ms: int
    decode_ms: int
    held_at: datetime
    settled_at: datetime | None
    end_user: str
    tags: Mapping[str, str]
    ledger_transaction_id: UUID | None
    ledger_legs: tuple[LedgerLeg, ...]
    corrections: tuple[Correction, ...] = ()
    """What repricing made of the charge since, the oldest first."""


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What one sweep did: holds voided for want of any news of them."""

    voided: tuple[UUID, ...]
    stuck: Mapping[UUID, str]
    """Holds that could not be closed, and why: somebody has to look at their books."""


class ReceiptNotFound(BillingError):
    """No such request in this tenant."""


class SettlementInvalid(BillingError):
    """A count or duration that cannot be true: nothing was written, the hold is still open."""
