"""What a tenant has to spend: its account, grants, top-ups and recharges."""

import enum
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from billing.contracts.errors import BillingError


@dataclass(frozen=True, slots=True)
class Balance:
    """A tenant's prepaid account: posted - held never passes below floor."""

    currency: str
    posted_pico: int
    held_pico: int
    floor_pico: int


class GrantCategory(enum.StrEnum):
    """What a grant's money is: ours, given away, or the tenant's, paid in."""

    PROMOTIONAL = "promotional"
    PAID = "paid"


@dataclass(frozen=True, slots=True)
class CreditGrant:
    """Credit of one source: what was given, and what of it is left.

    Grants are burned promotional first, then by priority (lower first), earlier expiry, age. One
    that is not yet in force (`posted_at` None) is no part of the balance.
    """

    grant_id: UUID
    source: str
    category: GrantCategory
    priority: int
    amount_pico: int
    remaining_pico: int
    effective_at: datetime
    expires_at: datetime | None
    posted_at: datetime | None
    created_at: datetime


class TopUpState(enum.StrEnum):
    """Where a top-up is; `failed` may still succeed when a later try of the payment does."""

    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REFUNDED = "refunded"


@dataclass(frozen=True, slots=True)
class TopUp:
    """Money that a tenant pays in. Its id is what a payment provider's retries are told by."""

    top_up_id: UUID
    organization_id: UUID
    amount_pico: int
    currency: str
    state: TopUpState
    is_recharge: bool
    payment_reference: str
    """The provider's name of the payment; empty until it is known."""
    refunded_pico: int
    failure: str
    created_at: datetime
    completed_at: datetime | None


@dataclass(frozen=True, slots=True)
class StartedTopUp:
    """A top-up whose payment awaits its payer at `payment_url`; '' where nothing does."""

    top_up: TopUp
    payment_url: str


@dataclass(frozen=True, slots=True)
class RechargeSettings:
    """When credit is bought without asking: below `threshold_pico`, `amount_pico` at a time.

    At most `month_max_pico` in a calendar month of the organization's time zone, one at a time,
    and none before `not_before_at`, which a failure sets.
    """

    is_enabled: bool = False
    threshold_pico: int = 0
    amount_pico: int = 0
    month_max_pico: int = 0
    failures: int = 0
    not_before_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class BillingSettings:
    """How a tenant is warned and invoiced. Tax is the operator's to say."""

    low_balance_pico: int | None = None
    """`balance.low` is told once when the balance falls below it."""
    group_lines_by: str = ""
    """'' , 'project' or 'tag:<key>': what an invoice's lines are split by besides the price."""
    tax_label: str = ""
    tax_ppm: int = 0
    """Tax in parts per million of the net amount: 19 % is 190000."""
    payment_days: int = 14


class CreditConflict(BillingError):
    """The idempotency key was used for another grant, or there is no account to credit."""


class AccountMissing(BillingError):
    """No account was opened for this organization."""


class TopUpNotFound(BillingError):
    """No such top-up in this tenant, or none of this payment."""


class TopUpConflict(BillingError):
    """The idempotency key or payment belongs to another top-up, or the sum paid is another."""


class TopUpUnavailable(BillingError):
    """No payment provider is set up here."""


class RefundTooLarge(BillingError):
    """More than was paid and not refunded, or than is left of the credit it bought."""


class CreditLimitTooLow(BillingError):
    """More than this limit is owed or held already."""
