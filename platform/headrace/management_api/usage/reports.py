"""Usage: `/v1/organization/usage/...` in OpenAI's shape, and ours with money and local days.

Reads the reports of `billing` and renders them; never adds anything up itself.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import billing.facade
import tenants.facade
from billing.contracts import (
    ServiceTier,
    UsageBucket,
    UsagePage,
    UsageQuery,
    UsageRow,
)
from headrace.management_api.base import OrganizationKeyView, TenantView
from headrace.management_api.bodies import Money, money
from headrace.management_api.usage.report_query import END_USER, asked_usage, next_page
from tenants.contracts import Permission

REPORT_PARAMETERS = [
    OpenApiParameter("start_time", OpenApiTypes.STR, required=True, description="inclusive"),
    OpenApiParameter("end_time", OpenApiTypes.STR, description="exclusive; now unless given"),
    OpenApiParameter("bucket_width", OpenApiTypes.STR, enum=["1m", "1h", "1d"]),
    OpenApiParameter("group_by[]", OpenApiTypes.STR, many=True),
    OpenApiParameter("project_ids[]", OpenApiTypes.UUID, many=True),
    OpenApiParameter("api_key_ids[]", OpenApiTypes.UUID, many=True),
    OpenApiParameter("models[]", OpenApiTypes.STR, many=True),
    OpenApiParameter("user_ids[]", OpenApiTypes.STR, many=True),
    OpenApiParameter("batch", OpenApiTypes.BOOL),
    OpenApiParameter("tag", OpenApiTypes.STR, description="the one cost tag to look at"),
    OpenApiParameter("tag_values[]", OpenApiTypes.STR, many=True),
    OpenApiParameter("limit", OpenApiTypes.INT, description="buckets of a page"),
    OpenApiParameter("page", OpenApiTypes.STR, description="`next_page` of the last answer"),
]


class TagShown(serializers.Serializer[Any]):
    """A cost tag and the value that a group has; null is what does not carry the tag."""

    name = serializers.CharField()
    value = serializers.CharField(allow_null=True)


class GroupShown(serializers.Serializer[Any]):
    """What a result is of; what the report does not group by is null."""

    object = serializers.CharField()
    project_id = serializers.UUIDField(allow_null=True)
    api_key_id = serializers.UUIDField(allow_null=True)
    model = serializers.CharField(allow_null=True)
    batch = serializers.BooleanField(allow_null=True)
    user_id = serializers.CharField(allow_null=True)
    tag = TagShown(allow_null=True)
    num_model_requests = serializers.IntegerField()
    input_tokens = serializers.IntegerField()


class CompletionsResult(GroupShown):
    """What one group of completions used in one bucket."""

    input_uncached_tokens = serializers.IntegerField()
    input_cached_tokens = serializers.IntegerField()
    input_cache_write_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()


class UsageResult(CompletionsResult):
    """What one group used in one bucket, and what it was charged."""

    num_failed_requests = serializers.IntegerField()
    currency = serializers.CharField()
    cost = Money()
    charge = Money()
    written_off = Money()


class ReportPage(serializers.Serializer[Any]):
    """A page of buckets."""

    object = serializers.ChoiceField(["page"])
    has_more = serializers.BooleanField()
    next_page = serializers.CharField(allow_null=True)


class OpenAiBucket(serializers.Serializer[Any]):
    """A span of time in Unix seconds, and its groups."""

    object = serializers.ChoiceField(["bucket"])
    start_time = serializers.IntegerField()
    end_time = serializers.IntegerField()


class CompletionsBucket(OpenAiBucket):
    """A bucket of completions."""

    results = CompletionsResult(many=True)


class EmbeddingsBucket(OpenAiBucket):
    """A bucket of embeddings."""

    results = GroupShown(many=True)


class CompletionsPage(ReportPage):
    """Usage of completions."""

    data = CompletionsBucket(many=True)  # type: ignore[assignment]  # a field, as DRF means it


class EmbeddingsPage(ReportPage):
    """Usage of embeddings."""

    data = EmbeddingsBucket(many=True)  # type: ignore[assignment]  # a field, as DRF means it


class LocalBucket(serializers.Serializer[Any]):
    """A span of the organization's time, and its groups."""

    object = serializers.ChoiceField(["bucket"])
    start_time = serializers.DateTimeField()
    end_time = serializers.DateTimeField()
    results = UsageResult(many=True)


class UsageReport(ReportPage):
    """Usage of everything, with money."""

    time_zone = serializers.CharField()
    data = LocalBucket(many=True)  # type: ignore[assignment]  # a field, as DRF means it


class CompletionsUsageView(OrganizationKeyView):
    """Everything but embeddings, in OpenAI's shape and UTC days."""

    permissions = {"GET": Permission.USAGE_READ}

    @extend_schema(parameters=REPORT_PARAMETERS, responses=CompletionsPage)
    def get(self, request: Request) -> Response:
        """One page of buckets."""
        query = replace(asked_usage(request, "UTC"), is_embedding=False)
        page = billing.facade.usage_page(self.actor.organization_id, query)
        return Response(openai_page(page, lambda row: _completions_result(row, query)))


class EmbeddingsUsageView(OrganizationKeyView):
    """Embeddings only, in OpenAI's shape and UTC days."""

    permissions = {"GET": Permission.USAGE_READ}

    @extend_schema(parameters=REPORT_PARAMETERS, responses=EmbeddingsPage)
    def get(self, request: Request) -> Response:
        """One page of buckets."""
        query = replace(asked_usage(request, "UTC"), is_embedding=True)
        page = billing.facade.usage_page(self.actor.organization_id, query)
        kind = "organization.usage.embeddings.result"
        return Response(openai_page(page, lambda row: _group(row, query, kind)))


class UsageView(TenantView):
    """Everything, with money, in days of the organization's time zone."""

    permissions = {"GET": Permission.USAGE_READ}

    @extend_schema(parameters=REPORT_PARAMETERS, responses=UsageReport)
    def get(self, request: Request, organization_id: UUID) -> Response:
        """One page of buckets."""
        zone = organization_zone(organization_id)
        query = asked_usage(request, zone)
        page = billing.facade.usage_page(organization_id, query)
        return Response(
            {
                "object": "page",
                "time_zone": zone,
                "data": [_local_bucket(bucket, query) for bucket in page.buckets],
                "has_more": page.next_at is not None,
                "next_page": next_page(page.next_at),
            }
        )


def organization_zone(organization_id: UUID) -> str:
    """Where the organization's days begin: an IANA name."""
    operator = tenants.facade.operator_of(organization_id)
    return tenants.facade.read_organization(operator).time_zone


def openai_page(page: UsagePage, render: Callable[[UsageRow], dict[str, Any]]) -> dict[str, Any]:
    """A page of buckets as OpenAI's clients read it."""
    return {
        "object": "page",
        "data": [
            {
                "object": "bucket",
                "start_time": int(bucket.start_at.timestamp()),
                "end_time": int(bucket.end_at.timestamp()),
                "results": [render(row) for row in bucket.rows],
            }
            for bucket in page.buckets
        ],
        "has_more": page.next_at is not None,
        "next_page": next_page(page.next_at),
    }


def _local_bucket(bucket: UsageBucket, query: UsageQuery) -> dict[str, Any]:
    zone = ZoneInfo(query.time_zone)
    return {
        "object": "bucket",
        "start_time": bucket.start_at.astimezone(zone).isoformat(),
        "end_time": bucket.end_at.astimezone(zone).isoformat(),
        "results": [_usage_result(row, query) for row in bucket.rows],
    }


def _group(row: UsageRow, query: UsageQuery, kind: str) -> dict[str, Any]:
    """What every result has: its group, its requests and its input."""
    by_tag = query.by_tag and query.tag != END_USER
    return {
        "object": kind,
        "project_id": _text(row.project_id),
        "api_key_id": _text(row.key_id),
        "model": row.model,
        "batch": None if row.tier is None else row.tier == ServiceTier.BATCH,
        "user_id": row.tag_value if query.by_tag and not by_tag else None,
        "tag": {"name": query.tag, "value": row.tag_value} if by_tag else None,
        "num_model_requests": row.requests,
        "input_tokens": row.uncached_input_tokens + row.cached_input_tokens,
    }


def _completions_result(
    row: UsageRow, query: UsageQuery, kind: str = "organization.usage.completions.result"
) -> dict[str, Any]:
    return {
        **_group(row, query, kind),
        "input_uncached_tokens": row.uncached_input_tokens,
        "input_cached_tokens": row.cached_input_tokens,
        # What is written to a cache is priced as input, and is in the uncached tokens.
        "input_cache_write_tokens": 0,
        "output_tokens": row.output_tokens,
    }


def _usage_result(row: UsageRow, query: UsageQuery) -> dict[str, Any]:
    return {
        **_completions_result(row, query, "usage.result"),
        "num_failed_requests": row.errors,
        "currency": row.currency,
        "cost": money(row.cost_pico),
        "charge": money(row.charge_pico),
        "written_off": money(row.written_off_pico),
    }


def _text(value: UUID | None) -> str | None:
    return None if value is None else str(value)
