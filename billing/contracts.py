"""What other packages see of billing: frozen values, typed errors. Money is integers, always.

Prices are micro-units of currency per million tokens (`*_micros_per_mtok`), which is exactly
pico-units per token; amounts are pico-units (`*_pico`). No float comes near either.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from uuid import UUID

PICO = 10**12
"""Pico-units in one unit of currency."""
END_USER_LENGTH_MAX = 128


class ServiceTier(enum.StrEnum):
    """Which price list a request is sold under."""

    INTERACTIVE = "interactive"
    BATCH = "batch"


class TokenClass(enum.StrEnum):
    """What a token is sold as. Cached input and cache writes cost what input does unless set."""

    INPUT = "input"
    CACHED_INPUT = "cached_input"
    CACHE_WRITE = "cache_write"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Offer:
    """A model for sale: what tenants call it, what it takes, and how long it will be there.

    From `shutdown_at` on it is retired: no request is served, and the refusal names `successor`.
    """

    offer_id: UUID
    public_id: str
    display_name: str
    owned_by: str
    context_tokens_max: int
    output_tokens_max: int
    created_at: datetime
    deprecated_at: datetime | None = None
    shutdown_at: datetime | None = None
    successor: str | None = None
    """The public id of the offer to go to."""


@dataclass(frozen=True, slots=True)
class Quote:
    """The unit prices in force for one offer and tier at one instant, with their price rows.

    A tenant's own price goes before the list's, class by class. `cached_input` and `cache_write`
    fall back to the input price (and its row) where none is set; None is that too.
    """

    offer: Offer
    tier: ServiceTier
    currency: str
    input_price_id: UUID
    cached_input_price_id: UUID
    output_price_id: UUID
    input_micros_per_mtok: int
    cached_input_micros_per_mtok: int
    output_micros_per_mtok: int
    cache_write_price_id: UUID | None = None
    cache_write_micros_per_mtok: int | None = None


@dataclass(frozen=True, slots=True)
class PriceEntry:
    """One price of a book; None ends the price in force and puts nothing in its place."""

    public_id: str
    tier: ServiceTier
    token_class: TokenClass
    price_micros_per_mtok: int | None


@dataclass(frozen=True, slots=True)
class DraftBook:
    """Prices that may come: of the list, or (with an organization) of that tenant alone."""

    entries: tuple[PriceEntry, ...]
    currency: str = "USD"
    note: str = ""
    organization_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class PublishedBook:
    """A book in the catalog, and what looked odd about it. `price_ids` are the rows it added."""

    book_id: UUID
    version: int
    effective_at: datetime
    price_ids: tuple[UUID, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UsageCounts:
    """Disjoint token counts of one request, by price class; each >= 0."""

    uncached_input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    cache_write_tokens: int = 0
    """Of engines that charge for filling their cache; ours never does."""

    def __post_init__(self) -> None:
        """Raises ValueError for a negative count."""
        if (
            min(
                self.uncached_input_tokens,
                self.cached_input_tokens,
                self.output_tokens,
                self.cache_write_tokens,
            )
            < 0
        ):
            raise ValueError("token counts must not be negative")

    @property
    def prompt_tokens(self) -> int:
        """All input tokens: uncached, cached, and written to a cache."""
        return self.uncached_input_tokens + self.cached_input_tokens + self.cache_write_tokens


@dataclass(frozen=True, slots=True)
class PreviewLine:
    """What usage of one model by one tenant came to, and what it would come to, in pico-units.

    `tenant` is an organization's id, or what a usage export calls its owner. `now_pico` is what the
    events cost, or what an export would cost at the prices in force; None is without a price.
    """

    tenant: str
    model: str
    tier: ServiceTier
    requests: int
    counts: UsageCounts
    now_pico: int | None
    draft_pico: int | None


@dataclass(frozen=True, slots=True)
class ExportPreview:
    """The lines of a usage export's preview, and what of the export could not be read and why."""

    lines: tuple[PreviewLine, ...]
    rows_read: int
    rows_refused: int
    refusals: tuple[str, ...]
    """The first ones, each with its line number."""


@dataclass(frozen=True, slots=True)
class Repriced:
    """What repricing moved (or, in a dry run, would move) of one tenant's, in pico-units."""

    organization_id: UUID
    events: int
    charged_pico: int
    given_back_pico: int
    written_off_pico: int


@dataclass(frozen=True, slots=True)
class PriceSpan:
    """A price over a span of time, as a tenant may see it; `ends_at` None is until further news."""

    price_id: UUID
    public_id: str
    tier: ServiceTier
    token_class: TokenClass
    currency: str
    price_micros_per_mtok: int
    effective_at: datetime
    ends_at: datetime | None
    book_version: int
    own: bool
    """Agreed with this tenant: it goes before the list's."""


@dataclass(frozen=True, slots=True)
class Alias:
    """A tenant's own name for an offer, in one project or (None) in the whole organization."""

    alias_id: UUID
    name: str
    public_id: str
    project_id: UUID | None
    created_at: datetime


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


class QuotaScope(enum.StrEnum):
    """Whose requests a quota counts together."""

    ORGANIZATION = "organization"
    PROJECT = "project"
    KEY = "key"
    END_USER = "end_user"


class QuotaMetric(enum.StrEnum):
    """What a quota counts; spend is in pico-units."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    SPEND = "spend"


class QuotaPeriod(enum.StrEnum):
    """From which local midnight a quota counts anew."""

    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class QuotaWanted:
    """A quota as somebody sets it.

    `scope_id` is the project's or key's. Of scope end_user, `end_user` '' is each end user by
    himself, from his first request; a named one's own quota goes before it. A hard quota refuses,
    a soft one only tells. Cached tokens that do not count are reserved all the same.
    """

    scope: QuotaScope
    metric: QuotaMetric
    period: QuotaPeriod
    limit_amount: int
    scope_id: UUID | None = None
    end_user: str = ""
    is_hard: bool = True
    counts_cached: bool = True
    recipients: tuple[str, ...] = ()
    """Mail addresses to tell beside the organization's own."""
    subject_prefix: str = ""


@dataclass(frozen=True, slots=True)
class QuotaSubject:
    """What one end user, or the whole scope ('' then), has used of a quota's window and holds."""

    end_user: str
    used_amount: int
    held_amount: int


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota in force, and where its window stands.

    `subjects` are the whole scope alone, or the end users who used most; empty before the first
    request.
    """

    quota_id: UUID
    wanted: QuotaWanted
    time_zone: str
    window_start: datetime
    resets_at: datetime
    subjects: tuple[QuotaSubject, ...]
    set_at: datetime
    set_by_kind: str
    set_by_id: UUID | None


@dataclass(frozen=True, slots=True)
class QuotaInTheWay:
    """The quota that refused a hold: whose, how much, and when it starts again."""

    scope: QuotaScope
    end_user: str
    metric: QuotaMetric
    period: QuotaPeriod
    limit_amount: int
    time_zone: str
    resets_at: datetime


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
class Balance:
    """A tenant's prepaid account: posted - held never passes below floor."""

    currency: str
    posted_pico: int
    held_pico: int
    floor_pico: int


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What one sweep did: holds voided for want of any news of them."""

    voided: tuple[UUID, ...]


class BucketWidth(enum.StrEnum):
    """How long each bucket of a report is."""

    MINUTE = "1m"
    HOUR = "1h"
    DAY = "1d"
    SPAN = "all"
    """One bucket for all of it."""


class UsageDimension(enum.StrEnum):
    """What a report may tell apart, beside the value of one tag."""

    PROJECT = "project_id"
    KEY = "api_key_id"
    MODEL = "model"
    TIER = "tier"


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """What a report is asked for: events from `start_at` to before `end_at`, in buckets.

    Days are those of `time_zone`. Empty filters let everything pass. `tag` is the one tag to look
    at, `user` being the end user: `by_tag` groups by its values, `tag_values` keeps only these.
    """

    start_at: datetime
    end_at: datetime
    width: BucketWidth = BucketWidth.DAY
    time_zone: str = "UTC"
    group_by: frozenset[UsageDimension] = frozenset()
    tag: str | None = None
    by_tag: bool = False
    tag_values: tuple[str, ...] = ()
    project_ids: tuple[UUID, ...] = ()
    key_ids: tuple[UUID, ...] = ()
    models: tuple[str, ...] = ()
    tiers: tuple[ServiceTier, ...] = ()
    is_embedding: bool | None = None
    buckets_max: int = 31


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What one group used in one bucket; what the report does not group by is None."""

    project_id: UUID | None
    key_id: UUID | None
    model: str | None
    tier: str | None
    tag_value: str | None
    """None also for what does not carry the tag."""
    currency: str
    requests: int
    errors: int
    uncached_input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    cost_pico: int
    charge_pico: int

    @property
    def written_off_pico(self) -> int:
        """What the requests cost beyond what they were charged."""
        return self.cost_pico - self.charge_pico


@dataclass(frozen=True, slots=True)
class UsageBucket:
    """The groups of one span of time; an empty bucket has none."""

    start_at: datetime
    end_at: datetime
    rows: tuple[UsageRow, ...]


@dataclass(frozen=True, slots=True)
class UsagePage:
    """Consecutive buckets; `next_at` is where the next page starts, None after the last."""

    buckets: tuple[UsageBucket, ...]
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Which requests a list shows; what is None lets everything pass."""

    start_at: datetime | None = None
    end_at: datetime | None = None
    project_id: UUID | None = None
    key_id: UUID | None = None
    model: str | None = None
    """As served."""
    tier: ServiceTier | None = None
    finish_reason: str | None = None
    errors_only: bool = False
    tag: str | None = None
    """The one tag to look at, `user` being the end user."""
    tag_value: str = ""


@dataclass(frozen=True, slots=True)
class RequestSummary:
    """One settled request, without its prices and ledger entries: those are on its receipt."""

    request_id: UUID
    occurred_at: datetime
    held_at: datetime
    project_id: UUID
    key_id: UUID
    tier: ServiceTier
    currency: str
    model_asked: str
    model_served: str
    counts: UsageCounts
    cost_pico: int
    charge_pico: int
    finish_reason: str
    source: UsageSource
    queue_ms: int
    prefill_ms: int
    decode_ms: int
    end_user: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RequestPage:
    """Requests in order; `goes_on_after` names where a search that looked at enough stopped."""

    requests: tuple[RequestSummary, ...]
    goes_on_after: UUID | None


@dataclass(frozen=True, slots=True)
class InvariantReport:
    """One invariant of the books: how many rows of its table were looked at, and what broke it."""

    broken_when: str
    table: str
    rows: int
    findings: tuple[str, ...]


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
    """A top-up whose payment awaits its payer at `payment_url`."""

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


@dataclass(frozen=True, slots=True)
class BillingProfile:
    """Whom an invoice is addressed to: personal fields, which a deletion removes."""

    legal_name: str = ""
    address: str = ""
    email: str = ""
    tax_id: str = ""
    purchase_order: str = ""


class InvoiceKind(enum.StrEnum):
    """An invoice asks for money, a statement reports what credit paid, a credit note gives back."""

    INVOICE = "invoice"
    STATEMENT = "statement"
    CREDIT_NOTE = "credit_note"


class LineKind(enum.StrEnum):
    """What a line is about. Those after `credit` report movements and are not in the total."""

    USAGE = "usage"
    CORRECTION = "correction"
    """A late event's charge, or a change of one, of an earlier period."""
    WRITTEN_OFF = "written_off"
    CARRIED = "carried"
    """The residue of the invoice before, rounded once it makes a cent."""
    CREDIT = "credit"
    TOP_UP = "top_up"
    GRANT = "grant"
    EXPIRED = "expired"
    REFUND = "refund"


@dataclass(frozen=True, slots=True)
class InvoiceLine:
    """One line: an exact amount, and the same rounded half-up to cents."""

    position: int
    kind: LineKind
    model: str
    tier: str
    token_class: str
    group: str
    tokens: int
    price_micros_per_mtok: int | None
    exact_pico: int
    rounded_pico: int
    of_period_start_at: datetime | None = None
    """Of a correction: when its charges belong to."""
    of_period_end_at: datetime | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Invoice:
    """An issued document, never changed: exact_pico + residue_in = net_pico + residue_out."""

    invoice_id: UUID
    number: int
    kind: InvoiceKind
    currency: str
    time_zone: str
    period_start_at: datetime
    period_end_at: datetime
    exact_pico: int
    residue_in_pico: int
    residue_out_pico: int
    net_pico: int
    tax_label: str
    tax_ppm: int
    tax_pico: int
    total_pico: int
    paid_pico: int
    credited_pico: int
    issued_at: datetime
    due_at: datetime | None
    corrects: UUID | None
    lines: tuple[InvoiceLine, ...] = ()
    recipient: BillingProfile | None = None

    @property
    def due_pico(self) -> int:
        """What is still to be paid; below 0 it is ours to give back."""
        if self.kind is not InvoiceKind.INVOICE:
            return 0
        return self.total_pico - self.paid_pico - self.credited_pico


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


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What replaying the log came to: entries read, balances compared, and those that differ."""

    entries: int
    accounts: int
    differences: tuple[str, ...]


class BillingError(Exception):
    """Base of everything this package raises on purpose."""


class ModelNotFound(BillingError):
    """No such offer, or one without an active price (never free by accident)."""


class ModelRetired(ModelNotFound):
    """The offer was shut down; `successor` is the public id to go to, if there is one."""

    def __init__(self, public_id: str, successor: str | None) -> None:
        super().__init__(f"{public_id} was shut down")
        self.successor = successor


class AliasInvalid(BillingError):
    """An alias of a bad name, to an unknown model or project, or one too many; `param` says."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


class AliasExists(BillingError):
    """The organization, or its project, has an alias of this name."""


class AliasNotFound(BillingError):
    """No such alias in this tenant."""


class PriceBookInvalid(BillingError):
    """A price book that cannot be published as it stands; nothing was written."""


class PricesUnchanged(PriceBookInvalid):
    """A book whose prices are in force then anyway."""


class PricesSuspicious(PriceBookInvalid):
    """Prices that look like slips; publishing them takes the operator's word (`warnings`)."""

    def __init__(self, warnings: tuple[str, ...]) -> None:
        super().__init__("; ".join(warnings))
        self.warnings = warnings


class UsageExportInvalid(BillingError):
    """A usage export that cannot be read: no known columns, or too many bad rows."""


class UsageTooWide(BillingError):
    """A report of more rows than anybody reads: group by less, or filter more."""


class ReceiptNotFound(BillingError):
    """No such request in this tenant."""


class SettlementInvalid(BillingError):
    """A count or duration that cannot be true: nothing was written, the hold is still open."""


class QuotaInvalid(BillingError):
    """A quota that makes no sense, or one too many; `param` names what is wrong."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class QuotaNotFound(BillingError):
    """No such quota in this tenant, or none of that project or key."""


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


class InvoiceNotFound(BillingError):
    """No such invoice in this tenant."""


class InvoiceConflict(BillingError):
    """The payment or credit note is more than is due, or its key was used for another."""


class StripeSignatureInvalid(BillingError):
    """The message is not Stripe's, or not of now."""


class StripeEventInvalid(BillingError):
    """The message is signed and makes no sense."""


class StripeEventEarly(BillingError):
    """The message is of rows that are not here yet: it must come again."""
