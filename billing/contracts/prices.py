"""Models for sale, their names and what their tokens cost when."""

import enum
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from billing.contracts.counts import UsageCounts
from billing.contracts.errors import BillingError

PICO = 10**12
"""Pico-units in one unit of currency."""


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
class PriceBookInfo:
    """A version of the list: who published it, and since when it holds."""

    book_id: UUID
    version: int
    note: str
    effective_at: datetime
    created_at: datetime
    created_by: str


@dataclass(frozen=True, slots=True)
class Alias:
    """A tenant's own name for an offer, in one project or (None) in the whole organization."""

    alias_id: UUID
    name: str
    public_id: str
    project_id: UUID | None
    created_at: datetime


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
