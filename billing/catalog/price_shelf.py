"""The rows of price books: found, ended, withdrawn and added, while nobody else publishes.

Holds the rules of spans (one price at a time, none changed, the past left alone) and knows nothing
of what a price should be. Called by `price_books` only.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connections, transaction
from django.db.backends.utils import CursorWrapper
from psycopg.sql import SQL, Composed, Identifier, Placeholder

from billing.contracts import DraftBook, ModelNotFound, PriceEntry
from tenants.facade import tenant_scope


@dataclass(frozen=True, slots=True)
class Shelf:
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


@dataclass(frozen=True, slots=True)
class Span:
    """A price over a span of time; `until` None is until further news."""

    price_id: UUID
    micros_per_mtok: int
    since: datetime
    until: datetime | None


@contextmanager
def open_shelf(draft: DraftBook, using: str) -> Iterator[Shelf]:
    """A transaction in which nobody else publishes. Raises ModelNotFound."""
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
        yield Shelf(cursor, using, draft.organization_id, draft.currency, now, offer_ids)


def spans_after(shelf: Shelf, entry: PriceEntry, moment: datetime) -> list[Span]:
    """The price in force at that moment, if there is one, and those announced for later."""
    key = shelf.key(entry)
    query = SQL(
        "SELECT id, price_micros_per_mtok, lower(valid), upper(valid) FROM {prices}"
        " WHERE ({columns}) = ({values}) AND valid && tstzrange(%s, NULL) ORDER BY valid"
    ).format(prices=shelf.prices, columns=_columns(key), values=_values(key))
    return [Span(*row) for row in shelf.ask(query, [*key.values(), moment])]


def make_room(shelf: Shelf, entry: PriceEntry, moment: datetime) -> datetime | None:
    """End the price in force at that moment there; returns when the next one starts, if any does.

    One that would have come into force at that very moment is withdrawn.
    """
    spans = spans_after(shelf, entry, moment)
    if not spans:
        return None
    first = spans[0]
    if first.since > moment:
        return first.since
    query = SQL(
        "UPDATE {prices} SET valid = CASE WHEN lower(valid) = %s THEN 'empty'"
        " ELSE tstzrange(lower(valid), %s) END WHERE id = %s RETURNING id"
    ).format(prices=shelf.prices)
    shelf.ask(query, [moment, moment, first.price_id])
    return first.until


def insert_book(shelf: Shelf, note: str, moment: datetime, created_by: str) -> tuple[UUID, int]:
    """The next version; its id and number."""
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


def insert_price(
    shelf: Shelf, entry: PriceEntry, book_id: UUID, moment: datetime, until: datetime | None
) -> UUID:
    """One price of a book over a span of time; its id."""
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


def _columns(key: Mapping[str, object]) -> Composed:
    return SQL(", ").join(map(Identifier, key))


def _values(key: Mapping[str, object]) -> Composed:
    return SQL(", ").join([Placeholder()] * len(key))
