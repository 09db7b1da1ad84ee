"""Sums over hours of models, whatever the pieces of time: the reads behind overviews and latencies.

Whole hours come from the rollup; events that it has not counted, and those of hours that a bound
cuts, come from themselves: one statement reads all three, so each event is in it once. Reads only
the tenant's own rows. Called by the modules beside it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import add
from typing import Any
from uuid import UUID

from django.db import connections
from psycopg import sql

from billing.contracts import ServiceTier, UsageTooWide
from billing.usage.buckets import cut_hours
from billing.usage.histograms import BUCKETS
from billing.usage.sources import QUEUED, QUEUED_SPAN, in_cut_hours, listed
from tenants.facade import tenant_scope

ROWS_MAX = 20_000
"""Groups of one read."""
SUMMED = {
    "requests": "1",
    "errors": "billing_usage_is_error(e.finish_reason)::int",
    "uncached_input_tokens": "e.uncached_input_tokens",
    "cached_input_tokens": "e.cached_input_tokens",
    "output_tokens": "e.output_tokens",
    "cost_pico": "e.cost_pico",
    "charge_pico": "e.charge_pico",
    "cache_saved_pico": "billing_cache_saved(e.cached_input_tokens, e.input_micros_per_mtok,"
    " e.cached_input_micros_per_mtok)",
}
"""The rollup's columns, and what an event adds to each."""
CUT = "billing_usage_event e"
PLACED = """{source} CROSS JOIN LATERAL (
    SELECT billing_latency_place(billing_first_token_ms(
        e.finish_reason, e.output_tokens, e.queue_ms, e.prefill_ms)) AS place OFFSET 0) AS timed"""
OF_HOURS = """
    SELECT width_bucket(hour, %(bounds)s::timestamptz[]) AS bucket{columns}, {sums}
      FROM billing_usage_model_hour
     WHERE organization_id = %(organization)s AND hour >= %(start)s AND hour < %(end)s
       AND hour <> ALL (%(cut_hours)s) AND {conditions}
     GROUP BY bucket{columns}"""
OF_EVENTS = """
    SELECT width_bucket(e.occurred_at, %(bounds)s::timestamptz[]) AS bucket{columns}, {sums}
      FROM {source}
     WHERE e.organization_id = %(organization)s AND {span} AND {conditions}
     GROUP BY bucket{columns}"""
BY_PLACE = """
    SELECT bucket{columns},
           billing_counts_by_place(array_agg(place), array_agg(events::int))::bigint[]
      FROM ({placed}) AS placed WHERE place IS NOT NULL GROUP BY bucket{columns}"""


@dataclass(frozen=True, slots=True)
class Asked:
    """Buckets between `bounds`, told apart by `columns`; empty filters let everything pass."""

    bounds: Sequence[datetime]
    columns: tuple[str, ...]
    project_ids: tuple[UUID, ...] = ()
    models: tuple[str, ...] = ()
    tiers: tuple[ServiceTier, ...] = ()


Group = tuple[int, tuple[Any, ...]]
"""The number of a bucket, from 0, and the values of the columns: whatever types they have."""


def sums(organization_id: UUID, asked: Asked) -> dict[Group, list[int]]:
    """What the amounts of SUMMED come to in each group that has an event. Raises UsageTooWide."""
    of_hours = listed(sql.SQL(f"sum({name})") for name in SUMMED)
    of_events = listed(sql.SQL(f"sum({amount})") for amount in SUMMED.values())
    parts = [_of_hours(asked, of_hours)]
    for source, span in _sources(asked):
        parts.append(_of_events(asked, asked.columns, of_events, source, span))
    return _added_up(
        ((bucket, columns), list(map(int, amounts)))
        for bucket, columns, amounts in _read(organization_id, asked, parts)
    )


def first_token_counts(organization_id: UUID, asked: Asked) -> dict[Group, list[int]]:
    """How often each bucket of `histograms` in each group that has a time. Raises UsageTooWide."""
    places = listed(sql.SQL(f"sum(first_token_counts[{n}])") for n in range(1, BUCKETS + 1))
    parts = [_of_hours(asked, sql.SQL("ARRAY[{}]::bigint[]").format(places))]
    for source, span in _sources(asked):
        placed = _of_events(
            asked,
            (*asked.columns, "place"),
            sql.SQL("count(*) AS events"),
            sql.SQL(PLACED).format(source=source),
            span,
        )
        parts.append(sql.SQL(BY_PLACE).format(columns=_columns(asked.columns), placed=placed))
    found = _added_up(
        ((bucket, columns), counts)
        for bucket, columns, (counts,) in _read(organization_id, asked, parts)
    )
    return {group: counts for group, counts in found.items() if any(counts)}


def _read(
    organization_id: UUID, asked: Asked, parts: Sequence[sql.Composed]
) -> Iterator[tuple[int, tuple[Any, ...], tuple[Any, ...]]]:
    statement = sql.SQL("SELECT * FROM ({}) AS part LIMIT %(rows_max)s").format(
        sql.SQL(" UNION ALL ").join(parts)
    )
    values: dict[str, Any] = {
        "organization": organization_id,
        "bounds": list(asked.bounds[:-1]),
        "start": asked.bounds[0],
        "end": asked.bounds[-1],
        "cut_hours": cut_hours(asked.bounds),
        "projects": list(asked.project_ids),
        "models": list(asked.models),
        "tiers": [tier.value for tier in asked.tiers],
        "rows_max": ROWS_MAX + 1,
    }
    with tenant_scope(organization_id), connections["default"].cursor() as cursor:
        cursor.execute(statement, values)
        rows = cursor.fetchall()
    if len(rows) > ROWS_MAX:
        raise UsageTooWide(f"there are more than {ROWS_MAX} groups: group or filter more")
    width = len(asked.columns)
    for bucket, *rest in rows:
        yield bucket - 1, tuple(rest[:width]), tuple(rest[width:])


def _added_up(parts: Iterable[tuple[Group, list[int]]]) -> dict[Group, list[int]]:
    """The sources know nothing of each other: a group may have a row of each."""
    found: dict[Group, list[int]] = {}
    for group, amounts in parts:
        found[group] = list(map(add, found[group], amounts)) if group in found else amounts
    return found


def _of_hours(asked: Asked, amounts: sql.Composed) -> sql.Composed:
    return sql.SQL(OF_HOURS).format(
        columns=_columns(asked.columns), sums=amounts, conditions=_conditions(asked)
    )


def _of_events(
    asked: Asked,
    columns: Sequence[str],
    amounts: sql.Composable,
    source: sql.Composable,
    span: sql.Composable,
) -> sql.Composed:
    return sql.SQL(OF_EVENTS).format(
        columns=_columns(columns),
        sums=amounts,
        source=source,
        span=span,
        conditions=_conditions(asked),
    )


def _sources(asked: Asked) -> list[tuple[sql.Composable, sql.Composable]]:
    return [
        (sql.SQL(QUEUED), sql.SQL(QUEUED_SPAN)),
        (sql.SQL(CUT), in_cut_hours(asked.bounds)),
    ]


def _columns(names: Sequence[str]) -> sql.Composed:
    """Each behind a comma: what comes before is there always, they may be none."""
    return sql.SQL("").join(sql.SQL(", {}").format(sql.Identifier(name)) for name in names)


def _conditions(asked: Asked) -> sql.Composed:
    filters = {
        "project_id = ANY (%(projects)s)": bool(asked.project_ids),
        "model_served = ANY (%(models)s)": bool(asked.models),
        "tier = ANY (%(tiers)s)": bool(asked.tiers),
    }
    wanted = [sql.SQL(text) for text, given in filters.items() if given]
    return sql.SQL(" AND ").join([sql.SQL("true"), *wanted])
