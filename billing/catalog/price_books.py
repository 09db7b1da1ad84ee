"""The price book: versions of the list, and of what was agreed with single tenants.

Never edits the past: a book takes effect now or later, its rows end the spans of those before them
and are never changed, so every event's snapshot stays true. Called by seed and operators
(housekeeper's alias).
"""

from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

from billing.catalog.price_checks import out_of_bounds, warnings
from billing.catalog.price_shelf import (
    Shelf,
    insert_book,
    insert_price,
    make_room,
    open_shelf,
    spans_after,
)
from billing.contracts import (
    DraftBook,
    PriceBookInvalid,
    PriceEntry,
    PricesSuspicious,
    PricesUnchanged,
    PublishedBook,
    ServiceTier,
    TokenClass,
)
from tenants.facade import operator_of, record_audit

ENTRIES_MAX = 1_000
"""Prices of one book, published in one transaction."""
AHEAD_MAX = timedelta(days=731)
"""A book of the far future is a slip of the keyboard."""
NOTE_CHARS_MAX = 500
AUTHOR_CHARS_MAX = 128

Priced = dict[tuple[str, ServiceTier, TokenClass], int]


def publish_book(
    draft: DraftBook,
    created_by: str,
    effective_at: datetime | None = None,
    *,
    accept_warnings: bool = False,
    using: str = "housekeeper",
) -> PublishedBook:
    """Make a draft the next version, in force from `effective_at` (None: from now) on.

    A price holds until the next one announced, whenever that was announced; entries that say what
    is in force then anyway add no row. Raises ModelNotFound for an unknown model, PricesSuspicious
    with what looks odd unless that is accepted, PricesUnchanged for a draft that changes nothing,
    and PriceBookInvalid for a moment in the past, an absurd price, or a price twice.
    """
    _check(draft, created_by)
    with open_shelf(draft, using) as shelf:
        return _publish(shelf, draft, created_by, effective_at, accept_warnings)


def set_price(
    public_id: str,
    tier: ServiceTier,
    token_class: str,
    price_micros_per_mtok: int,
    currency: str = "USD",
    using: str = "housekeeper",
    organization_id: UUID | None = None,
) -> UUID:
    """Sell one token class of an offer at this price from now on; returns the price row's id.

    A book of one entry, of the list or of one tenant. Setting the price in force again changes
    nothing. Raises ModelNotFound, or ValueError for a negative or absurd price or an unknown class.
    """
    if out_of_bounds(price_micros_per_mtok):
        raise ValueError(f"a price of {price_micros_per_mtok} micros per Mtok is out of bounds")
    entry = PriceEntry(public_id, tier, TokenClass(token_class), price_micros_per_mtok)
    draft = DraftBook((entry,), currency, organization_id=organization_id)
    with open_shelf(draft, using) as shelf:
        for span in spans_after(shelf, entry, shelf.now):
            if span.since <= shelf.now and span.micros_per_mtok == price_micros_per_mtok:
                return span.price_id
        (new_id,) = _publish(shelf, draft, "set_price", None, accept_warnings=True).price_ids
    return new_id


def _check(draft: DraftBook, created_by: str) -> None:
    """Raises PriceBookInvalid for what no catalog could make right."""
    if not 1 <= len(draft.entries) <= ENTRIES_MAX:
        raise PriceBookInvalid(f"a book has 1 to {ENTRIES_MAX} prices")
    if len(draft.note) > NOTE_CHARS_MAX or not 1 <= len(created_by) <= AUTHOR_CHARS_MAX:
        raise PriceBookInvalid("the note or the name of its author is too long, or there is none")
    keys = {(entry.public_id, entry.tier, entry.token_class) for entry in draft.entries}
    if len(keys) != len(draft.entries):
        raise PriceBookInvalid("a price is in the book twice")
    for entry in draft.entries:
        if entry.price_micros_per_mtok is not None and out_of_bounds(entry.price_micros_per_mtok):
            raise PriceBookInvalid(
                f"{entry.public_id}: {entry.price_micros_per_mtok} micros per million tokens is "
                f"out of bounds"
            )


def _publish(
    shelf: Shelf,
    draft: DraftBook,
    created_by: str,
    effective_at: datetime | None,
    accept_warnings: bool,
) -> PublishedBook:
    moment = shelf.now if effective_at is None else effective_at
    if moment < shelf.now:
        raise PriceBookInvalid("prices never change in the past")
    if moment > shelf.now + AHEAD_MAX:
        raise PriceBookInvalid(f"a book takes effect within {AHEAD_MAX.days} days")
    changes = [entry for entry in draft.entries if _changes(shelf, entry, moment)]
    if not changes:
        raise PricesUnchanged("these prices are in force then anyway")
    odd = _warnings(shelf, changes, moment)
    if odd and not accept_warnings:
        raise PricesSuspicious(odd)
    book_id, version = insert_book(shelf, draft.note, moment, created_by)
    price_ids = []
    for entry in changes:
        until = make_room(shelf, entry, moment)
        if entry.price_micros_per_mtok is not None:
            price_ids.append(insert_price(shelf, entry, book_id, moment, until))
    if shelf.organization_id is not None:
        _audit(shelf, shelf.organization_id, book_id, changes, moment)
    return PublishedBook(book_id, version, moment, tuple(price_ids), odd)


def _changes(shelf: Shelf, entry: PriceEntry, moment: datetime) -> bool:
    wanted = entry.price_micros_per_mtok
    in_force = [
        span.micros_per_mtok for span in spans_after(shelf, entry, moment) if span.since <= moment
    ]
    return in_force != ([] if wanted is None else [wanted])


def _warnings(shelf: Shelf, changes: Collection[PriceEntry], moment: datetime) -> tuple[str, ...]:
    listed: Priced = {}
    own: Priced = {}
    names = {offer_id: public_id for public_id, offer_id in shelf.offer_ids.items()}
    for offer_id, tier, token_class, micros, is_own in shelf.ask(
        "SELECT offer_id, tier, token_class, micros, own FROM billing_prices_of(%s)"
        " WHERE offer_id = ANY (%s) AND currency = %s AND valid @> %s::timestamptz",
        [shelf.organization_id, list(names), shelf.currency, moment],
    ):
        key = (names[offer_id], ServiceTier(tier), TokenClass(token_class))
        (own if is_own else listed)[key] = micros
    before = listed | own
    changed: Priced = {}
    target = listed if shelf.organization_id is None else own
    for entry in changes:
        key = (entry.public_id, entry.tier, entry.token_class)
        if entry.price_micros_per_mtok is None:
            target.pop(key, None)
        else:
            changed[key] = target[key] = entry.price_micros_per_mtok
    return warnings(listed | own, changed, before, shelf.currency)


def _audit(
    shelf: Shelf,
    organization_id: UUID,
    book_id: UUID,
    changes: Collection[PriceEntry],
    moment: datetime,
) -> None:
    """A tenant's own prices are in its audit log; the list's books are a log of their own."""
    prices = {
        f"{entry.public_id} {entry.tier} {entry.token_class}": entry.price_micros_per_mtok
        for entry in changes
    }
    details = {"effective_at": moment.isoformat(), "micros_per_mtok": prices}
    actor = operator_of(organization_id)
    record_audit(actor, "price.set", "price_book", book_id, details, using=shelf.using)
