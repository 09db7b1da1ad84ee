"""`/console/<slug>/usage`: what was used, by hour or day, split and filtered as the address says.

The numbers are the usage report's of the API, to the last unit. Called by the console's routes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from uuid import UUID

from django.http import HttpRequest, HttpResponse

import billing.facade
import tenants.facade
from billing.contracts import (
    BucketWidth,
    LatencyQuery,
    ServiceTier,
    UsageBucket,
    UsageQuery,
    UsageRow,
    UsageSeries,
)
from headrace.console_kit import formats
from headrace.console_kit.charts import IN_TURN, Chart, Color, Series, Unit
from headrace.console_kit.pages import PageView
from headrace.console_kit.tables import Column, Row, Table
from headrace.tenant_console.usage.asking import (
    DIMENSIONS,
    PRESETS,
    SPLITS,
    TAG_SPLIT,
    Asked,
    Measure,
    asked,
    span_of,
    usage_query,
    width_of,
)
from headrace.tenant_console.usage.groups import COLUMNS, csv_href, group_of, summed
from tenants.contracts import KeyInfo, KeyKind, Permission

UNITS = {Measure.TOKENS: Unit.TOKENS, Measure.SPEND: Unit.MONEY, Measure.REQUESTS: Unit.REQUESTS}
MEASURES: Mapping[Measure, Callable[[UsageRow], int]] = {
    Measure.TOKENS: lambda row: (
        row.uncached_input_tokens + row.cached_input_tokens + row.output_tokens
    ),
    Measure.SPEND: lambda row: row.charge_pico,
    Measure.REQUESTS: lambda row: row.requests,
}
CLASSES = {
    "uncached_input": ("Uncached input", Color.UNCACHED),
    "cached_input": ("Cached input", Color.CACHED),
    "output": ("Output", Color.OUTPUT),
    "batch": ("Batch", Color.BATCH),
}
WIDTHS = {BucketWidth.HOUR: "hour", BucketWidth.DAY: "day"}
PROJECTS_MAX = 2_000
KEYS_MAX = 100
"""Keys that the filter offers; others are reached from their own page."""
GROUPS_SHOWN_MAX = 100


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several pages that are near to each other."""

    text: str
    href: str
    is_current: bool


class UsagePage(PageView):
    """Stacked bars, first-token times, and a table of the groups."""

    page = "usage"
    title = "Usage"
    needs = Permission.USAGE_READ
    template = "tenant_console/usage/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """The page that its address says."""
        wanted = self.wanted = asked(request.GET.dict(), self.organization.cost_tags)
        start_at, end_at = span_of(wanted, self.now, self.zone)
        width = width_of(wanted, start_at, end_at)
        query = usage_query(wanted, start_at, end_at, width, self.zone)
        buckets = billing.facade.usage_page(self.organization_id, query).buckets
        self._key_ids = {row.key_id for one in buckets for row in one.rows if row.key_id}
        if wanted.key_id is not None:
            self._key_ids.add(wanted.key_id)
        sums = summed([row for bucket in buckets for row in bucket.rows])
        before = self._before(query) if wanted.compares else None
        return self.show(
            asked=wanted,
            query=wanted.query,
            span_text=formats.span_text(start_at, min(end_at, self.now), self.zone),
            is_hourly=width is BucketWidth.HOUR,
            presets=[
                Choice(
                    text,
                    self._here(replace(wanted, span=name, from_day=None, to_day=None)),
                    name == wanted.span and wanted.from_day is None,
                )
                for name, text in PRESETS.items()
            ],
            measures=[
                Choice(
                    one.value.title(),
                    self._here(replace(wanted, measure=one, split=self._split_for(one))),
                    one is wanted.measure,
                )
                for one in Measure
            ],
            kept=self._kept(),
            sums=sums,
            prompt_tokens=sums["uncached_input_tokens"] + sums["cached_input_tokens"],
            before=before,
            chart=self._chart(query, buckets),
            latency_chart=self._latencies(query),
            latency_note=f"queueing and prefill of {wanted.tier or 'interactive'} requests",
            table=self._table(buckets),
            requests_href=self._requests(start_at, end_at),
            models=self._models(),
            keys=self._keys,
        )

    def _here(self, wanted: Asked) -> str:
        return self.url("usage", **wanted.query)

    def _split_for(self, measure: Measure) -> str:
        """Only tokens have classes."""
        split = self.wanted.split
        return "model" if split == "class" and measure is not Measure.TOKENS else split

    def _kept(self) -> list[tuple[str, str]]:
        """The filters in force, each with the page without it."""
        wanted = self.wanted
        named: list[tuple[str, UUID | str | None, Asked]] = [
            ("Project", wanted.project_id, replace(wanted, project_id=None)),
            ("Key", wanted.key_id, replace(wanted, key_id=None)),
            ("Model", wanted.model, replace(wanted, model="")),
            ("Tier", wanted.tier, replace(wanted, tier="")),
            ("End user", wanted.user, replace(wanted, user="")),
            (f"Tag {wanted.tag}", wanted.tag_value, replace(wanted, tag="", tag_value="")),
        ]
        return [
            (f"{title}: {self._name(value)}", self._here(without))
            for title, value, without in named
            if value
        ]

    def splits(self) -> list[tuple[str, str]]:
        """By what the page can be split, with what that is called."""
        tags = [(f"{TAG_SPLIT}{tag}", f"Tag {tag}") for tag in self.organization.cost_tags]
        classes = self.wanted.measure is Measure.TOKENS
        named = [(name, text) for name, text in SPLITS.items() if classes or name != "class"]
        return [*named, *tags]

    def _before(self, query: UsageQuery) -> Mapping[str, int]:
        """The same span before, in sum."""
        span = query.end_at - query.start_at
        earlier = replace(
            query,
            start_at=query.start_at - span,
            end_at=query.start_at,
            width=BucketWidth.SPAN,
            group_by=frozenset(),
            by_tag=False,
        )
        [bucket] = billing.facade.usage_page(self.organization_id, earlier).buckets
        return summed(bucket.rows)

    # --- charts -----------------------------------------------------------------------------------

    def _chart(self, query: UsageQuery, buckets: Sequence[UsageBucket]) -> Chart:
        wanted = self.wanted
        if wanted.split == "class":
            series = [
                Series(*CLASSES[str(one.name)], one.values)
                for one in billing.facade.class_series(buckets)
            ]
        else:
            found = billing.facade.top_series(
                buckets, DIMENSIONS.get(wanted.split), MEASURES[wanted.measure]
            )
            colors = iter(IN_TURN)
            series = [
                Series(
                    self._series_name(one),
                    Color.OTHER if one.is_rest else next(colors),
                    one.values,
                )
                for one in found
            ]
        return Chart(
            "usage",
            f"{wanted.measure.value.title()} by {WIDTHS[query.width]}",
            UNITS[wanted.measure],
            [self._label(bucket.start_at, query.width) for bucket in buckets],
            series,
            currency=self.currency,
            hrefs=[self._requests(bucket.start_at, bucket.end_at) for bucket in buckets],
            csv_href=csv_href(self.organization_id, query, wanted.split),
        )

    def _series_name(self, series: UsageSeries) -> str:
        return "Other" if series.is_rest else self._name(series.name)

    def _latencies(self, query: UsageQuery) -> Chart | None:
        """None where the filters are of what first-token times are not told apart by."""
        if query.key_ids or query.tag_values:
            return None
        buckets = billing.facade.first_token_latencies(
            self.organization_id,
            LatencyQuery(
                query.start_at,
                query.end_at,
                query.width,
                query.time_zone,
                project_ids=query.project_ids,
                models=query.models,
                # Unless asked for: bulk work queues for minutes, and nobody waits for it.
                tiers=query.tiers or (ServiceTier.INTERACTIVE,),
                buckets_max=query.buckets_max,
            ),
        )
        times = [bucket.rows[0].times if bucket.rows else None for bucket in buckets]
        return Chart(
            "first-token",
            "Time to first token",
            Unit.MILLISECONDS,
            [self._label(bucket.start_at, query.width) for bucket in buckets],
            [
                Series("Median", Color.FIRST, [one.p50_ms if one else None for one in times]),
                Series("95 %", Color.SECOND, [one.p95_ms if one else None for one in times]),
            ],
            kind="lines",
        )

    def _label(self, at: datetime, width: BucketWidth) -> str:
        local = at.astimezone(self.zone)
        return f"{local:%a %H:%M}" if width is BucketWidth.HOUR else f"{local.day} {local:%b}"

    # --- the table --------------------------------------------------------------------------------

    def _table(self, buckets: Sequence[UsageBucket]) -> Table:
        rows = [row for bucket in buckets for row in bucket.rows]
        split = "tier" if self.wanted.split == "class" else self.wanted.split
        groups: dict[UUID | str | None, list[UsageRow]] = {}
        for row in rows:
            groups.setdefault(group_of(row, split), []).append(row)
        by_name = [(name, summed(of_group)) for name, of_group in groups.items()]
        by_name.sort(key=lambda one: (-one[1]["charge_pico"], str(one[0])))
        return Table(
            "Usage by group",
            [
                Column(dict(self.splits()).get(split, SPLITS["tier"])),
                Column("Requests", is_number=True),
                Column("Failed", is_number=True, hides=True),
                Column("Uncached input", is_number=True, hides=True),
                Column("Cached input", is_number=True, hides=True),
                Column("Output", is_number=True, hides=True),
                Column("Charge", is_number=True),
            ],
            [
                Row([self._name(name), *self._cells(sums)], self._only(split, name))
                for name, sums in by_name[:GROUPS_SHOWN_MAX]
            ],
            empty="Nothing was used in this period.",
            totals=["Total", *self._cells(summed(rows))] if rows else (),
        )

    def _cells(self, sums: Mapping[str, int]) -> list[object]:
        *counts, charge_pico = (sums[name] for name in COLUMNS)
        return [*map(formats.count, counts), formats.money(charge_pico, self.currency)]

    def _only(self, split: str, name: UUID | str | None) -> str:
        """The same page with one group alone, split by what is next of interest."""
        wanted, text = self.wanted, str(name or "")
        if not text:
            return ""
        match split:
            case "model":
                return self._here(replace(wanted, model=text, split="key"))
            case "project" if isinstance(name, UUID):
                return self._here(replace(wanted, project_id=name, split="key"))
            case "key" if isinstance(name, UUID):
                return self._here(replace(wanted, key_id=name, split="model"))
            case "tier":
                return self._here(replace(wanted, tier=text, split="model"))
            case "user":
                return self._here(replace(wanted, user=text, split="model"))
        return self._here(
            replace(wanted, tag=split.removeprefix(TAG_SPLIT), tag_value=text, split="model")
        )

    # --- names and links --------------------------------------------------------------------------

    def _name(self, name: UUID | str | None) -> str:
        if name is None:
            return "Without"
        if isinstance(name, UUID):
            return self._names.get(name, f"…{name.hex[-8:]}")
        return name

    @cached_property
    def _names(self) -> Mapping[UUID, str]:
        """Of projects, archived ones too, and of keys, revoked ones too."""
        projects = tenants.facade.list_projects(
            self.actor, with_archived=True, rows_max=PROJECTS_MAX
        )
        named = {one.project_id: one.name for one in projects}
        return named | tenants.facade.key_names(self.actor, self._key_ids)

    @cached_property
    def _keys(self) -> list[KeyInfo]:
        return tenants.facade.list_keys(
            self.actor, KeyKind.PROJECT, with_revoked=True, rows_max=KEYS_MAX
        )

    def _models(self) -> list[str]:
        """What is for sale, and what the address names."""
        sold = billing.facade.models_for_sale(self.organization_id)
        named = {quote.offer.public_id for _, quote in sold} | {self.wanted.model}
        return sorted(named - {""})

    def _requests(self, start_at: datetime, end_at: datetime) -> str:
        """The requests behind a bar, for who may see them."""
        if not self.may(Permission.REQUESTS_READ):
            return ""
        wanted = self.wanted
        return self.url(
            "requests",
            start=start_at.astimezone(self.zone).isoformat(timespec="minutes"),
            end=end_at.astimezone(self.zone).isoformat(timespec="minutes"),
            **{
                name: wanted.query[name]
                for name in ("project", "key", "model", "tier", "user", "tag")
            },
        )
