"""Repricing: what past usage should have cost by a price book, posted as corrections.

Never edits an event or an entry: each correction is a ledger transaction of its own that points at
the event's, once for an event and book. What a dearer price asks beyond the hold or the balance is
written off, so no balance passes its floor. Called by `manage.py reprice` (housekeeper).
"""

from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from django.db import connections

from billing.contracts import PriceBookInvalid, Repriced
from billing.retry import call

PART_MAX = 200
"""Events of one transaction, which keeps the tenant's account locked while it posts."""
BEFORE_ALL = UUID(int=0)
"""Where a span begins: positions are a time and the id of a request, and none has a lesser id."""
REASON_CHARS_MAX = 200


def reprice(
    model: str,
    start_at: datetime,
    end_at: datetime,
    reason: str,
    created_by: str,
    *,
    version: int | None = None,
    organization_id: UUID | None = None,
    dry_run: bool = False,
    using: str = "housekeeper",
) -> Iterator[Repriced]:
    """Correct the usage of a model in [start, end) by a book, tenant by tenant.

    The book is the version given, or the newest that prices the model: of the list, or (with an
    organization) of that tenant, whose usage alone it then corrects. Its prices are all that were
    in force when it took effect, whichever version they came in; classes without one stay as they
    were. A dry run writes nothing and leaves out what the balance would not
    cover. Raises PriceBookInvalid for an unknown book, an empty span, or no reason.
    """
    if end_at <= start_at:
        raise PriceBookInvalid("the span of time is empty")
    if not 1 <= len(reason) <= REASON_CHARS_MAX:
        raise PriceBookInvalid(f"a reason has 1 to {REASON_CHARS_MAX} characters")
    book_id = _book(model, version, organization_id, using)
    for tenant in _tenants(model, start_at, end_at, organization_id, using):
        if dry_run:
            yield _looked_at(tenant, book_id, model, start_at, end_at, using)
        else:
            yield _corrected(tenant, book_id, model, start_at, end_at, reason, created_by, using)


def _corrected(
    organization_id: UUID,
    book_id: UUID,
    model: str,
    start_at: datetime,
    end_at: datetime,
    reason: str,
    created_by: str,
    using: str,
) -> Repriced:
    events, charged, given_back, written_off = 0, 0, 0, 0
    since, after = start_at, BEFORE_ALL
    while True:
        [(looked, corrected, *moved, last_at, last_id)] = call(
            "SELECT * FROM billing_correct_events(%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [organization_id, book_id, model, since, after, end_at, PART_MAX, reason, created_by],
            using,
        )
        events += corrected
        charged += int(moved[0])
        given_back += int(moved[1])
        written_off += int(moved[2])
        if looked < PART_MAX:
            return Repriced(organization_id, events, charged, given_back, written_off)
        since, after = last_at, last_id


def _looked_at(
    organization_id: UUID,
    book_id: UUID,
    model: str,
    start_at: datetime,
    end_at: datetime,
    using: str,
) -> Repriced:
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT count(*),"
            " coalesce(sum(greatest(least(new_pico, covered_pico) - paid_pico, 0)), 0),"
            " coalesce(sum(greatest(paid_pico - least(new_pico, covered_pico), 0)), 0),"
            " coalesce(sum(new_pico - old_pico - least(new_pico, covered_pico) + paid_pico), 0)"
            " FROM billing_repriced(%s, %s, %s, %s, %s, %s, NULL)"
            " WHERE NOT is_corrected AND new_pico <> old_pico",
            [organization_id, book_id, model, start_at, BEFORE_ALL, end_at],
        )
        events, *moved = cursor.fetchone() or (0, 0, 0, 0)
    return Repriced(organization_id, events, *(int(amount) for amount in moved))


def _book(model: str, version: int | None, organization_id: UUID | None, using: str) -> UUID:
    with connections[using].cursor() as cursor:
        if organization_id is None:
            cursor.execute(
                "SELECT b.id FROM billing_price_book b JOIN billing_price p ON p.book_id = b.id"
                " JOIN billing_offer o ON o.id = p.offer_id"
                " WHERE o.public_id = %s AND coalesce(b.version = %s, true)"
                " AND NOT isempty(p.valid) ORDER BY b.version DESC LIMIT 1",
                [model, version],
            )
        else:
            cursor.execute(
                "SELECT b.id FROM billing_tenant_price_book b"
                " JOIN billing_tenant_price p ON p.book_id = b.id"
                " JOIN billing_offer o ON o.id = p.offer_id"
                " WHERE o.public_id = %s AND coalesce(b.version = %s, true)"
                " AND NOT isempty(p.valid) AND b.organization_id = %s"
                " ORDER BY b.version DESC LIMIT 1",
                [model, version, organization_id],
            )
        row = cursor.fetchone()
    if row is None:
        raise PriceBookInvalid("no such book prices that model")
    book_id: UUID = row[0]
    return book_id


def _tenants(
    model: str,
    start_at: datetime,
    end_at: datetime,
    organization_id: UUID | None,
    using: str,
) -> list[UUID]:
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT organization_id FROM billing_usage_event"
            " WHERE occurred_at >= %s AND occurred_at < %s AND model_served = %s"
            " AND coalesce(organization_id = %s, true) ORDER BY organization_id",
            [start_at, end_at, model, organization_id],
        )
        return [tenant for (tenant,) in cursor.fetchall()]
