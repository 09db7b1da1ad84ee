"""What came of Stripe's messages, of exports to it, and of comparing with it."""

import enum
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from billing.contracts.errors import BillingError


class StripeEventOutcome(enum.StrEnum):
    """What became of a message from Stripe."""

    IGNORED = "ignored"
    """Not ours, or of nothing that we keep books of."""
    APPLIED = "applied"
    UNCHANGED = "unchanged"
    """What it says was known, or is older than what is known."""
    REPEATED = "repeated"
    QUARANTINED = "quarantined"
    """It contradicts the books: nothing was changed, and somebody must look."""
    REJECTED = "rejected"
    """Stripe has not signed it: somebody else put it into the inbox."""
    INVALID = "invalid"
    """It is signed and makes no sense."""
    FAILED = "failed"
    """The database did not take it in all its tries."""


@dataclass(frozen=True, slots=True)
class StripeExportReport:
    """How the export of usage stands after a run; counts are of rows."""

    planned: int
    sent: int
    pending: int
    late: int
    """Of the pending, those of an hour more than a day ago: somebody must look."""
    refused: int
    """Of the last 40 days, those that Stripe will not take any more."""
    oldest_pending_at: datetime | None


@dataclass(frozen=True, slots=True)
class StripeMismatch:
    """A sum of tokens that Stripe has otherwise than we told it."""

    organization_id: UUID
    model: str
    token_class: str
    our_tokens: int
    their_tokens: int


@dataclass(frozen=True, slots=True)
class StripeComparison:
    """Stripe's sums of one UTC day beside ours."""

    day: date
    sums: int
    used_tokens: int
    """Of all organizations that are exported, whether told yet or not."""
    told_tokens: int
    mismatches: tuple[StripeMismatch, ...]


class StripeSignatureInvalid(BillingError):
    """The message is not Stripe's, or not of now."""


class StripeEventInvalid(BillingError):
    """The message is too long, or is signed and makes no sense."""
