"""Rows of a usage report put into groups and summed, and the address of the same report as a file.

Pure. Called by the usage page.
"""

from collections.abc import Sequence
from urllib.parse import urlencode
from uuid import UUID

from billing.contracts import UsageQuery, UsageRow
from headrace.tenant_console.usage.asking import END_USER

COLUMNS = (
    *("requests", "errors", "uncached_input_tokens", "cached_input_tokens", "output_tokens"),
    "charge_pico",
)
CSV_GROUPS = {
    "class": "batch",
    "model": "model",
    "project": "project_id",
    "key": "api_key_id",
    "tier": "batch",
    "user": "user_id",
}


def group_of(row: UsageRow, split: str) -> UUID | str | None:
    """What a row is told apart by; a tag's value for tags and end users."""
    match split:
        case "model":
            return row.model
        case "project":
            return row.project_id
        case "key":
            return row.key_id
        case "tier":
            return row.tier
    return row.tag_value


def summed(rows: Sequence[UsageRow]) -> dict[str, int]:
    """The sum of each of COLUMNS."""
    return {name: sum(getattr(row, name) for row in rows) for name in COLUMNS}


def csv_href(organization_id: UUID, query: UsageQuery, split: str) -> str:
    """The API's file of the same report, which a session may load too."""
    asked_for: list[tuple[str, object]] = [
        ("start_time", query.start_at.isoformat()),
        ("end_time", query.end_at.isoformat()),
        ("bucket_width", query.width.value),
        ("group_by", CSV_GROUPS.get(split, "tag")),
        *(("project_ids", one) for one in query.project_ids),
        *(("api_key_ids", one) for one in query.key_ids),
        *(("models", one) for one in query.models),
        *(("batch", str(tier == "batch").lower()) for tier in query.tiers),
    ]
    if query.tag == END_USER:
        asked_for += [("user_ids", one) for one in query.tag_values]
    elif query.tag is not None:
        asked_for += [("tag", query.tag), *(("tag_values", one) for one in query.tag_values)]
    return f"/api/v1/organizations/{organization_id}/usage.csv?{urlencode(asked_for)}"
