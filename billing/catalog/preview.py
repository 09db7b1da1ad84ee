"""What would it have cost? Usage under a draft book: our own events, or another system's export.

Changes nothing. Exact: a cost is a sum of counts times prices, so sums of counts can be priced.
Called by `manage.py preview_prices` (housekeeper).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

from django.db import connections

from billing.catalog.usage_exports import RefusedRow, read_usage_export
from billing.contracts import (
    DraftBook,
    ExportPreview,
    PreviewLine,
    PriceBookInvalid,
    ServiceTier,
    TokenClass,
    UsageCounts,
)

REFUSALS_MAX = 20
Units = Mapping[TokenClass, int]
"""Prices of one model and tier by class."""
FALL_BACK = (TokenClass.CACHED_INPUT, TokenClass.CACHE_WRITE)
"""Classes that cost what input does where they have no price."""
EVENTS = """
    SELECT e.organization_id::text, e.model_served, e.tier,
           e.input_micros_per_mtok, e.cached_input_micros_per_mtok, e.output_micros_per_mtok,
           e.cached_input_price_id = e.input_price_id,
           i.id IS NOT NULL, c.id IS NOT NULL, o.id IS NOT NULL, count(*),
           sum(e.uncached_input_tokens), sum(e.cached_input_tokens), sum(e.output_tokens),
           sum(e.cost_pico)
      FROM billing_usage_event e
      LEFT JOIN billing_tenant_price i ON i.id = e.input_price_id
      LEFT JOIN billing_tenant_price c ON c.id = e.cached_input_price_id
      LEFT JOIN billing_tenant_price o ON o.id = e.output_price_id
     WHERE e.occurred_at >= %(start)s AND e.occurred_at < %(end)s AND e.currency = %(currency)s
       AND coalesce(e.organization_id = %(organization)s, true)
     GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10"""


def preview_events(
    draft: DraftBook, start_at: datetime, end_at: datetime, using: str = "housekeeper"
) -> list[PreviewLine]:
    """What the usage of [start, end) in the draft's currency cost, and would have, by tenant and
    model; a tenant's draft shows that tenant alone.

    Published, the draft would change some prices of the list (or of the tenant's own) and leave the
    others in force: all of those are taken. Classes without one keep what they were sold at, as
    does what the list meets at a tenant's own price. So it is what repricing by the published book
    would come to. Raises PriceBookInvalid for a draft that ends prices.
    """
    drafted = _drafted(draft)
    in_force = _in_force(draft, using)
    found: dict[tuple[str, str, ServiceTier], list[tuple[int, UsageCounts, int, int]]] = (
        defaultdict(list)
    )
    with connections[using].cursor() as cursor:
        cursor.execute(
            EVENTS,
            {
                "start": start_at,
                "end": end_at,
                "currency": draft.currency,
                "organization": draft.organization_id,
            },
        )
        for tenant, model, tier, *rest in cursor.fetchall():
            sold, follows, own = rest[:3], rest[3], rest[4:7]
            requests, uncached, cached, output, cost = (int(number) for number in rest[7:])
            counts = UsageCounts(uncached, cached, output)
            key = (model, ServiceTier(tier))
            prices = {**in_force.get(key, {}), **drafted.get(key, {})}
            units = _repriced(sold, prices, own if draft.organization_id is None else None, follows)
            found[tenant, *key].append((requests, counts, cost, _cost(counts, units)))
    return [_line(*key, parts) for key, parts in sorted(found.items())]


def preview_export(
    draft: DraftBook,
    lines: Iterable[str],
    renames: Mapping[str, str] | None = None,
    using: str = "housekeeper",
) -> ExportPreview:
    """What an export's usage would cost at the prices in force, and at the draft's over them.

    `renames` says which of our models stands for one of theirs; a tenant's own prices and aliases
    hold where the draft is a tenant's. Raises PriceBookInvalid or UsageExportInvalid.
    """
    drafted = _drafted(draft)
    in_force = _in_force(draft, using, with_list=True)
    names = _aliases(draft, using)
    found: dict[tuple[str, str, ServiceTier], UsageCounts] = {}
    requests: dict[tuple[str, str, ServiceTier], int] = defaultdict(int)
    refused: list[str] = []
    rows_read = rows_refused = 0
    for row in read_usage_export(lines):
        if isinstance(row, RefusedRow):
            rows_refused += 1
            if len(refused) < REFUSALS_MAX:
                refused.append(f"line {row.line}: {row.reason}")
            continue
        rows_read += 1
        model = (renames or {}).get(row.model, row.model)
        key = (row.tenant, names.get(model, model), row.tier)
        found[key] = _sum(found.get(key, UsageCounts()), row.counts)
        requests[key] += row.requests
    shown = []
    for (tenant, model, tier), counts in sorted(found.items()):
        now = in_force.get((model, tier), {})
        then = {**now, **drafted.get((model, tier), {})}
        shown.append(
            PreviewLine(
                tenant,
                model,
                tier,
                requests[tenant, model, tier],
                counts,
                _cost_if_sold(counts, now),
                _cost_if_sold(counts, then),
            )
        )
    return ExportPreview(tuple(shown), rows_read, rows_refused, tuple(refused))


def _drafted(draft: DraftBook) -> dict[tuple[str, ServiceTier], dict[TokenClass, int]]:
    drafted: dict[tuple[str, ServiceTier], dict[TokenClass, int]] = defaultdict(dict)
    for entry in draft.entries:
        if entry.price_micros_per_mtok is None:
            raise PriceBookInvalid("a draft that ends prices has no preview")
        drafted[entry.public_id, entry.tier][entry.token_class] = entry.price_micros_per_mtok
    return drafted


def _repriced(
    sold: list[int], prices: Units, own: list[bool] | None, cached_follows: bool
) -> dict[TokenClass, int]:
    """The units of events sold at these prices, with what others replace of them."""
    classes = (TokenClass.INPUT, TokenClass.CACHED_INPUT, TokenClass.OUTPUT)
    units = dict(zip(classes, sold, strict=True))
    for token_class, is_own in zip(classes, own or [False] * len(classes), strict=True):
        if token_class in prices and not is_own:
            units[token_class] = prices[token_class]
        elif token_class is TokenClass.CACHED_INPUT and cached_follows:
            units[token_class] = units[TokenClass.INPUT]
    return units


def _in_force(
    draft: DraftBook, using: str, *, with_list: bool = False
) -> dict[tuple[str, ServiceTier], dict[TokenClass, int]]:
    """Prices now that the draft's are a part of: the list's, or the tenant's own (`with_list`:
    before the list's)."""
    prices: dict[tuple[str, ServiceTier], dict[TokenClass, int]] = defaultdict(dict)
    own_only = draft.organization_id is not None and not with_list
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT o.public_id, p.tier, p.token_class, p.micros"
            " FROM billing_prices_of(%s) p JOIN billing_offer o ON o.id = p.offer_id"
            " WHERE p.currency = %s AND p.valid @> now() AND (p.own OR NOT %s) ORDER BY p.own",
            [draft.organization_id, draft.currency, own_only],
        )
        for model, tier, token_class, micros in cursor.fetchall():
            prices[model, ServiceTier(tier)][TokenClass(token_class)] = micros
    return prices


def _aliases(draft: DraftBook, using: str) -> dict[str, str]:
    """What the names of the draft's tenant mean."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT a.name, o.public_id FROM billing_alias a"
            " JOIN billing_offer o ON o.id = a.offer_id"
            " WHERE a.organization_id = %s AND a.project_id IS NULL",
            [draft.organization_id],
        )
        return dict(cursor.fetchall())


def _cost_if_sold(counts: UsageCounts, units: Units) -> int | None:
    if TokenClass.INPUT not in units or TokenClass.OUTPUT not in units:
        return None
    return _cost(counts, units)


def _cost(counts: UsageCounts, units: Units) -> int:
    cached, written = (units.get(one, units[TokenClass.INPUT]) for one in FALL_BACK)
    return (
        counts.uncached_input_tokens * units[TokenClass.INPUT]
        + counts.cached_input_tokens * cached
        + counts.cache_write_tokens * written
        + counts.output_tokens * units[TokenClass.OUTPUT]
    )


def _sum(one: UsageCounts, other: UsageCounts) -> UsageCounts:
    return UsageCounts(
        one.uncached_input_tokens + other.uncached_input_tokens,
        one.cached_input_tokens + other.cached_input_tokens,
        one.output_tokens + other.output_tokens,
        one.cache_write_tokens + other.cache_write_tokens,
    )


def _line(
    tenant: str,
    model: str,
    tier: ServiceTier,
    parts: list[tuple[int, UsageCounts, int, int]],
) -> PreviewLine:
    counts = UsageCounts()
    for _, some, _, _ in parts:
        counts = _sum(counts, some)
    return PreviewLine(
        tenant,
        model,
        tier,
        sum(requests for requests, _, _, _ in parts),
        counts,
        sum(cost for _, _, cost, _ in parts),
        sum(cost for _, _, _, cost in parts),
    )
