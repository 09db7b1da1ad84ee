"""Usage as other systems export it: CSV with a header, read into disjoint counts, row by row.

Pure; a row that cannot be true is refused with its line number and never counted for less. Called
by `preview`. docs/prices.md lists the columns.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from billing.contracts import ServiceTier, UsageCounts, UsageExportInvalid
from billing.pricing import counts_of

ROWS_MAX = 5_000_000
FIELD_CHARS_MAX = 4_096
COUNT = re.compile(r"\d{1,15}(?:\.0+)?")
"""A whole number, also as a spreadsheet writes it."""
BATCH = frozenset({"batch", "true", "1", "yes"})

MODEL = ("model", "model_name", "model_group", "model_id", "snapshot_id")
TENANT = (
    "tenant",
    "organization",
    "organization_id",
    "team",
    "team_alias",
    "team_id",
    "project",
    "project_id",
    "user",
    "user_id",
)
TIER = ("tier", "service_tier", "batch")
REQUESTS = ("requests", "num_model_requests", "api_requests", "n_requests")
PROMPT = ("prompt_tokens", "input_tokens", "n_context_tokens_total")
"""All input, cached included; but see DISJOINT."""
UNCACHED = ("input_uncached_tokens", "uncached_input_tokens")
CACHED = (
    "cached_tokens",
    "cached_input_tokens",
    "input_cached_tokens",
    "cache_read_input_tokens",
    "n_cached_context_tokens_total",
)
WRITTEN = ("cache_write_tokens", "input_cache_write_tokens", "cache_creation_input_tokens")
OUTPUT = ("completion_tokens", "output_tokens", "n_generated_tokens_total")
DISJOINT = frozenset({"input_tokens", "cache_read_input_tokens"})
"""Anthropic's names: beside the second, the first counts uncached input only."""


@dataclass(frozen=True, slots=True)
class ExportedUsage:
    """One row: counts of `requests` requests of one owner for one model."""

    tenant: str
    model: str
    tier: ServiceTier
    requests: int
    counts: UsageCounts


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that could not be read."""

    line: int
    reason: str


def read_usage_export(lines: Iterable[str]) -> Iterator[ExportedUsage | RefusedRow]:
    """Each row of an export. Raises UsageExportInvalid without columns for model, input and output,
    and past ROWS_MAX rows."""
    reader = csv.DictReader(lines)
    try:
        columns = _columns(reader.fieldnames or [])
        for number, row in enumerate(reader, start=1):
            if number > ROWS_MAX:
                raise UsageExportInvalid(f"an export has at most {ROWS_MAX} rows")
            try:
                yield _usage(row, columns)
            except ValueError as error:
                yield RefusedRow(reader.line_num, str(error))
    except csv.Error as error:
        raise UsageExportInvalid(f"line {reader.line_num}: {error}") from error


def _columns(header: Iterable[str]) -> Mapping[tuple[str, ...], str]:
    """Which of the header's columns holds what; each name is known in one group only."""
    there = {name.strip().lstrip("\ufeff").lower(): name for name in header}
    columns: dict[tuple[str, ...], str] = {}
    for group in (MODEL, TENANT, TIER, REQUESTS, PROMPT, UNCACHED, CACHED, WRITTEN, OUTPUT):
        found = next((name for name in group if name in there), None)
        if found is not None:
            columns[group] = there[found]
    if MODEL not in columns or OUTPUT not in columns or not columns.keys() & {PROMPT, UNCACHED}:
        raise UsageExportInvalid(
            "an export needs columns for the model, its input tokens and its output tokens, such as"
            " model, prompt_tokens and completion_tokens"
        )
    if there.keys() >= DISJOINT and "prompt_tokens" not in there:
        columns[UNCACHED] = columns.pop(PROMPT)
    return columns


def _usage(row: Mapping[str, str], columns: Mapping[tuple[str, ...], str]) -> ExportedUsage:
    def text(group: tuple[str, ...]) -> str:
        return (row.get(columns[group]) or "").strip() if group in columns else ""

    def count(group: tuple[str, ...], default: int = 0) -> int:
        number = text(group)
        if not number:
            return default
        if not COUNT.fullmatch(number):
            raise ValueError(f"{columns[group]} is {number[:40]!r}, no count")
        return int(number.partition(".")[0])

    model = text(MODEL)
    if not model or len(model) > FIELD_CHARS_MAX:
        raise ValueError("there is no model")
    cached, written, output = count(CACHED), count(WRITTEN), count(OUTPUT)
    if UNCACHED in columns:
        counts = UsageCounts(count(UNCACHED), cached, output, written)
    else:
        counts = counts_of(count(PROMPT), cached, output, written)
    tier = ServiceTier.BATCH if text(TIER).lower() in BATCH else ServiceTier.INTERACTIVE
    return ExportedUsage(text(TENANT), model, tier, count(REQUESTS, default=1), counts)
