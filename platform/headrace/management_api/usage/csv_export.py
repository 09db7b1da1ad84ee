"""Usage as a file: `GET /api/v1/organizations/{id}/usage.csv`, as long as its span.

A client reads it as it is written, a few buckets at once; no transaction is open meanwhile.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request

import billing.facade
from billing.contracts import (
    BucketWidth,
    ServiceTier,
    UsageBucket,
    UsagePage,
    UsageQuery,
    UsageRow,
)
from headrace import errors
from headrace.gateway.database import in_database
from headrace.management_api.base import TenantView
from headrace.management_api.csv_rows import csv_rows
from headrace.management_api.usage.report_query import asked_usage
from headrace.management_api.usage.reports import REPORT_PARAMETERS, organization_zone
from tenants.contracts import Permission

CSV_PAGE_BUCKETS = 31
"""Buckets that an export reads at once; it holds no more of them in memory."""
CSV_BUCKETS_MAX = 10_000
BUCKET_LENGTHS = {
    BucketWidth.MINUTE: timedelta(minutes=1),
    BucketWidth.HOUR: timedelta(hours=1),
    BucketWidth.DAY: timedelta(days=1),
}
CSV_HEAD = [
    *("start_time", "end_time", "project_id", "api_key_id", "model", "batch", "tag", "tag_value"),
    *("requests", "failed_requests", "input_uncached_tokens", "input_cached_tokens"),
    *("output_tokens", "currency", "cost_pico", "charge_pico", "charge"),
]


class UsageCsvView(TenantView):
    """The same report as a file: all its buckets, at most CSV_BUCKETS_MAX."""

    permissions = {"GET": Permission.USAGE_READ}

    @extend_schema(
        parameters=REPORT_PARAMETERS[:-2], responses={(200, "text/csv"): OpenApiTypes.STR}
    )
    def get(self, request: Request, organization_id: UUID) -> StreamingHttpResponse:
        """Rows as they are read, a few buckets at once."""
        zone = organization_zone(organization_id)
        query = replace(asked_usage(request, zone, paged=False), buckets_max=CSV_PAGE_BUCKETS)
        if query.end_at - query.start_at > CSV_BUCKETS_MAX * BUCKET_LENGTHS[query.width]:
            raise errors.invalid(f"A file has at most {CSV_BUCKETS_MAX} buckets.", "end_time")
        first = billing.facade.usage_page(organization_id, query)
        answer = StreamingHttpResponse(
            _csv_lines(organization_id, query, first), content_type="text/csv; charset=utf-8"
        )
        answer["Content-Disposition"] = 'attachment; filename="usage.csv"'
        answer["Cache-Control"] = "no-store"
        return answer


async def _csv_lines(
    organization_id: UUID, query: UsageQuery, page: UsagePage
) -> AsyncIterator[bytes]:
    """The file, a page of buckets at a time; no transaction is open while a client reads."""
    yield csv_rows([CSV_HEAD])
    while True:
        yield csv_rows(
            _csv_row(bucket, row, query) for bucket in page.buckets for row in bucket.rows
        )
        if page.next_at is None:
            return
        page = await in_database(
            billing.facade.usage_page, organization_id, replace(query, start_at=page.next_at)
        )


def _csv_row(bucket: UsageBucket, row: UsageRow, query: UsageQuery) -> list[str]:
    zone = ZoneInfo(query.time_zone)
    values = [
        bucket.start_at.astimezone(zone).isoformat(),
        bucket.end_at.astimezone(zone).isoformat(),
        row.project_id,
        row.key_id,
        row.model,
        None if row.tier is None else str(row.tier == ServiceTier.BATCH).lower(),
        query.tag,
        row.tag_value,
        row.requests,
        row.errors,
        row.uncached_input_tokens,
        row.cached_input_tokens,
        row.output_tokens,
        row.currency,
        row.cost_pico,
        row.charge_pico,
        billing.facade.decimal_string(row.charge_pico),
    ]
    return ["" if value is None else str(value) for value in values]
