"""Usage events of chosen times, planted past the holds that would have made them.

They have no hold and no ledger entries, so they go before anybody looks at the whole books.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connections
from psycopg.types.json import Jsonb
from uuid_utils.compat import uuid7

from tenants.facade import tenant_scope
from tests.billing.cast import Tenant

TABLES = (
    "billing_usage_delta",
    "billing_usage_hour",
    "billing_usage_tag_hour",
    "billing_usage_model_hour",
    "billing_usage_event",
)
QUEUE = """
    INSERT INTO billing_usage_delta (organization_id, request_id, occurred_at, is_embedding)
    VALUES (%s, %s, %s, %s)"""


@dataclass(frozen=True)
class Planted:
    """One event: each of its tokens costs one pico-unit, unless an uncached one is dearer."""

    occurred_at: datetime
    uncached: int = 1
    cached: int = 0
    output: int = 0
    model: str = "planted"
    tier: str = "interactive"
    finish_reason: str = "stop"
    end_user: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    is_embedding: bool = False
    project_id: UUID | None = None
    key_id: UUID | None = None
    queue_ms: int = 0
    prefill_ms: int = 0
    input_micros: int = 1


@contextmanager
def planted(tenant: Tenant, events: Sequence[Planted]) -> Iterator[list[UUID]]:
    """The tenant's events, queued for the rollups; their ids. All its usage goes at the end."""
    ids = [uuid7() for _ in events]
    with tenant_scope(tenant.organization_id, "owner"), connections["owner"].cursor() as cursor:
        for request_id, event in zip(ids, events, strict=True):
            values = _values(tenant, request_id, event)
            columns, marks = ", ".join(values), ", ".join(["%s"] * len(values))
            cursor.execute(
                f"INSERT INTO billing_usage_event ({columns}) VALUES ({marks})",
                list(values.values()),
            )
            cursor.execute(
                QUEUE, [tenant.organization_id, request_id, event.occurred_at, event.is_embedding]
            )
    try:
        yield ids
    finally:
        uproot(tenant)


def uproot(tenant: Tenant) -> None:
    """All the tenant's usage, and what was added up of it, is gone."""
    with tenant_scope(tenant.organization_id, "owner"), connections["owner"].cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"DELETE FROM {table}")


def _values(tenant: Tenant, request_id: UUID, event: Planted) -> dict[str, Any]:
    cost_pico = event.uncached * event.input_micros + event.cached + event.output
    return {
        "occurred_at": event.occurred_at,
        "request_id": request_id,
        "organization_id": tenant.organization_id,
        "project_id": event.project_id or tenant.project_id,
        "key_id": event.key_id or tenant.key_id,
        "ledger_tx_id": uuid7(),
        "held_at": event.occurred_at,
        "tier": event.tier,
        "currency": "USD",
        "model_asked": event.model,
        "model_served": event.model,
        "uncached_input_tokens": event.uncached,
        "cached_input_tokens": event.cached,
        "output_tokens": event.output,
        "input_price_id": uuid7(),
        "cached_input_price_id": uuid7(),
        "output_price_id": uuid7(),
        "input_micros_per_mtok": event.input_micros,
        "cached_input_micros_per_mtok": 1,
        "output_micros_per_mtok": 1,
        "cost_pico": cost_pico,
        "charge_pico": cost_pico,
        "finish_reason": event.finish_reason,
        "source": "measured",
        "queue_ms": event.queue_ms,
        "prefill_ms": event.prefill_ms,
        "decode_ms": 0,
        "end_user": event.end_user,
        "tags": Jsonb(dict(event.tags)),
    }
