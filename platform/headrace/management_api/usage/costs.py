"""`GET /v1/organization/costs`: what was charged by day, in OpenAI's shape.

OpenAI's amount is a JSON number, a float to most readers; the exact one stands beside it twice.
"""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import billing.facade
from billing.contracts import PICO, ServiceTier, UsageDimension, UsageQuery, UsageRow
from headrace.management_api.base import OrganizationKeyView
from headrace.management_api.usage.report_query import BucketLimits, asked_costs
from headrace.management_api.usage.reports import OpenAiBucket, ReportPage, openai_page
from tenants.contracts import Permission

LIMITS = BucketLimits(7, 180)
GROUPS = {
    "project_id": frozenset({UsageDimension.PROJECT}),
    "api_key_id": frozenset({UsageDimension.KEY}),
    "line_item": frozenset({UsageDimension.MODEL, UsageDimension.TIER}),
}
PARAMETERS = [
    OpenApiParameter("start_time", OpenApiTypes.STR, required=True, description="inclusive"),
    OpenApiParameter("end_time", OpenApiTypes.STR, description="exclusive; now unless given"),
    OpenApiParameter("bucket_width", OpenApiTypes.STR, enum=["1d"]),
    OpenApiParameter("group_by[]", OpenApiTypes.STR, many=True, enum=list(GROUPS)),
    OpenApiParameter("project_ids[]", OpenApiTypes.UUID, many=True),
    OpenApiParameter("api_key_ids[]", OpenApiTypes.UUID, many=True),
    OpenApiParameter("limit", OpenApiTypes.INT, description="buckets of a page"),
    OpenApiParameter("page", OpenApiTypes.STR, description="`next_page` of the last answer"),
]


class AmountShown(serializers.Serializer[Any]):
    """A charge: OpenAI's rounded number, and the exact amount as a decimal and in pico-units."""

    value = serializers.FloatField()
    currency = serializers.CharField()
    amount = serializers.CharField()
    amount_pico = serializers.CharField()


class CostsResult(serializers.Serializer[Any]):
    """What one group was charged in one day."""

    object = serializers.CharField()
    amount = AmountShown()
    line_item = serializers.CharField(allow_null=True)
    project_id = serializers.UUIDField(allow_null=True)
    api_key_id = serializers.UUIDField(allow_null=True)


class CostsBucket(OpenAiBucket):
    """A UTC day."""

    results = CostsResult(many=True)


class CostsPage(ReportPage):
    """Costs by day."""

    data = CostsBucket(many=True)  # type: ignore[assignment]  # a field, as DRF means it


class CostsView(OrganizationKeyView):
    """What the organization was charged, by UTC day."""

    permissions = {"GET": Permission.USAGE_READ}

    @extend_schema(parameters=PARAMETERS, responses=CostsPage)
    def get(self, request: Request) -> Response:
        """One page of days."""
        query: UsageQuery = asked_costs(request, GROUPS, LIMITS)
        page = billing.facade.usage_page(self.actor.organization_id, query)
        return Response(openai_page(page, _result))


def _result(row: UsageRow) -> dict[str, Any]:
    return {
        "object": "organization.costs.result",
        "amount": {
            "value": row.charge_pico / PICO,
            "currency": row.currency.lower(),
            "amount": billing.facade.decimal_string(row.charge_pico),
            "amount_pico": str(row.charge_pico),
        },
        "line_item": _line_item(row),
        "project_id": None if row.project_id is None else str(row.project_id),
        "api_key_id": None if row.key_id is None else str(row.key_id),
    }


def _line_item(row: UsageRow) -> str | None:
    if row.model is None:
        return None
    return f"{row.model}, batch" if row.tier == ServiceTier.BATCH else row.model
