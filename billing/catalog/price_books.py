"""The price book: versions of the list, and of what was agreed with single tenants.

Never edits the past: a book takes effect now or later, its rows end the spans of those before them
and are never changed, so every event's snapshot stays true. Called by seed and operators
(housekeeper's alias).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connections, transaction
from django.db.backends.utils import CursorWrapper
from psycopg.sql import SQL, Composed, Identifier, Placeholder

from billing.catalog.price_checks import out_of_bounds, warnings
from billing.contracts import (
    DraftBook,
    ModelNotFound,
    PriceBookInvalid,
    PriceEntry,
    PricesSuspicious,
    PricesUnchanged,
    PublishedBook,
    ServiceTier,
    TokenClass,
)
from tenants.facade import operator_of, record_audit, tenant_scope

ENTRIES_MAX = 1_000
"""Prices of one book, published in one transaction."""
AHEAD_MAX = timedelta(days=731)
"""A book of the far future is a slip of the keyboard."""
NOTE_CHARS_MAX = 500
AUTHOR_CHARS_MAX = 128

Priced = dict[tuple[str, ServiceTier, TokenClass], int]


@dataclass(frozen=True, slots=True)
class _Shelf:
    """One book's place while nobody else publishes: the list's tables, or those of a tenant."""

    cursor: CursorWrapper
    using: str
    organization_id: UUID | None
    currency: str
    now: datetime
    offer_ids: dict[str, UUID]

    @property
    def prices(self) -> Identifier:
        """The table of its prices."""
        return Identifier("billing_price" if not self.tenant else "billing_tenant_price")

    @property
    def books(self) -> Identifier:
        """The table of its versions."""
        return Identifier("billing_price_book" if not self.tenant else "billing_tenant_price_book")

    @property
    def tenant(self) -> dict[str, object]:
        """The column that says whose they are; the list's rows have none."""
        return {} if self.organization_id is None else {"organization_id": self.organization_id}

    def key(self, entry: PriceEntry) -> dict[str, object]:
        """What only one price at a time is in force for."""
        return self.tenant | {
            "offer_id": self.offer_ids[entry.public_id],
            "tier": entry.tier.value,
            "token_class": entry.token_class.value,
            "currency": self.currency,
        }

    def ask(
        self, query: str | Composed, parameters: Sequence[Any]
    ) -> list[tuple[Any, ...]]:  # of whatever type the columns are
        """All rows of one statement."""
        self.cursor.execute(query, parameters)
        return list(self.cursor.fetchall())


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
    with _shelf(draft, using) as shelf:
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
    with _shelf(draft, using) as shelf:
        for price_id, micros, _, _ in _spans_after(shelf, entry, shelf.now)[:1]:
            if micros == price_micros_per_mtok:
                current_id: UUID = price_id
                return current_id
        (new_id,) = _publish(shelf, draft, "set_price", None, accept_warnings=True).price_ids
    return new_id


@contextmanager
def _shelf(draft: DraftBook, using: str) -> Iterator[_Shelf]:
    """A transaction in which nobody else publishes."""
    scope = (
        transaction.atomic(using=using)
        if draft.organization_id is None
        else tenant_scope(draft.organization_id, using)
    )
    with scope, connections[using].cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('billing_price_book', 0))")
        # Read once the books are ours: now() is of before the wait for them.
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchall()[0][0]
        wanted = sorted({entry.public_id for entry in draft.entries})
        cursor.execute(
            "SELECT public_id, id FROM billing_offer WHERE public_id = ANY (%s)", [wanted]
        )
        offer_ids = dict(cursor.fetchall())
        for public_id in wanted:
            if public_id not in offer_ids:
                raise ModelNotFound(f"no such model: {public_id}")
        yield _Shelf(cursor, using, draft.organization_id, draft.currency, now, offer_ids)


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
    shelf: _Shelf,
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
    book_id, version = _insert_book(shelf, draft.note, moment, created_by)
    price_ids = []
    for entry in changes:
        until = _make_room(shelf, entry, moment)
        if entry.price_micros_per_mtok is not None:
            price_ids.append(_insert_price(shelf, entry, book_id, moment, until))
    if shelf.organization_id is not None:
        _audit(shelf, shelf.organization_id, book_id, changes, moment)
    return PublishedBook(book_id, version, moment, tuple(price_ids), odd)


def _changes(shelf: _Shelf, entry: PriceEntry, moment: datetime) -> bool:
    in_force = [
        micros for _, micros, since, _ in _spans_after(shelf, entry, moment) if since <= moment
    ]
    return in_force != (
        [] if entry.price_micros_per_mtok is None else [entry.price_micros_per_mtok]
    )


def _spans_after(shelf: _Shelf, entry: PriceEntry, moment: datetime) -> list[tuple[Any, ...]]:
    """Id, price, start and end (None: open) of the price in force at that moment, if there is one,
    and of those announced for later."""
    key = shelf.key(entry)
    query = SQL(
        "SELECT id, price_micros_per_mtok, lower(valid), upper(valid) FROM {prices}"
        " WHERE ({columns}) = ({values}) AND valid && tstzrange(%s, NULL) ORDER BY valid"
    ).format(prices=shelf.prices, columns=_columns(key), values=_values(key))
    return shelf.ask(query, [*key.values(), moment])


def _make_room(shelf: _Shelf, entry: PriceEntry, moment: datetime) -> datetime | None:
    """End the price in force at that moment there; returns when the next one starts, if any does.

    One that would have come into force at that very moment is withdrawn.
    """
    spans = _spans_after(shelf, entry, moment)
    if not spans:
        return None
    price_id, _, since, until = spans[0]
    if since > moment:
        next_start: datetime = since
        return next_start
    query = SQL(
        "UPDATE {prices} SET valid = CASE WHEN lower(valid) = %s THEN 'empty'"
        " ELSE tstzrange(lower(valid), %s) END WHERE id = %s RETURNING id"
    ).format(prices=shelf.prices)
    shelf.ask(query, [moment, moment, price_id])
    end: datetime | None = until
    return end


def _warnings(shelf: _Shelf, changes: Collection[PriceEntry], moment: datetime) -> tuple[str, ...]:
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


def _insert_book(shelf: _Shelf, note: str, moment: datetime, created_by: str) -> tuple[UUID, int]:
    query = SQL(
        "INSERT INTO {books} (id, version, note, effective_at, created_by{columns})"
        " SELECT uuidv7(), coalesce(max(version), 0) + 1, %s, %s, %s{values}"
        " FROM {books} WHERE ({tenant}) RETURNING id, version"
    ).format(
        books=shelf.books,
        columns=SQL("").join(SQL(", {}").format(Identifier(name)) for name in shelf.tenant),
        values=SQL("").join(SQL(", {}::uuid").format(Placeholder()) for _ in shelf.tenant),
        tenant=SQL(" AND ").join(
            [SQL("true")] + [SQL("{} = %s").format(Identifier(name)) for name in shelf.tenant]
        ),
    )
    tenant = list(shelf.tenant.values())
    [(book_id, version)] = shelf.ask(query, [note, moment, created_by, *tenant, *tenant])
    return book_id, version


def _insert_price(
    shelf: _Shelf, entry: PriceEntry, book_id: UUID, moment: datetime, until: datetime | None
) -> UUID:
    key = shelf.key(entry)
    query = SQL(
        "INSERT INTO {prices} (id, {columns}, book_id, price_micros_per_mtok, valid)"
        " VALUES (uuidv7(), {values}, %s, %s, tstzrange(%s, %s)) RETURNING id"
    ).format(prices=shelf.prices, columns=_columns(key), values=_values(key))
    [(price_id,)] = shelf.ask(
        query, [*key.values(), book_id, entry.price_micros_per_mtok, moment, until]
    )
    new_id: UUID = price_id
    return new_id


def _audit(
    shelf: _Shelf,
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


def _columns(key: Mapping[str, object]) -> Composed:
    return SQL(", ").join(map(Identifier, key))


def _values(key: Mapping[str, object]) -> Composed:
    return SQL(", ").join([Placeholder()] * len(key))
