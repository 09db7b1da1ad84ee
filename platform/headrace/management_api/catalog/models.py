"""The models an organization may ask for, with prices of both tiers:
`/api/v1/organizations/{id}/models`."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import billing.facade
from billing.contracts import Quote, ServiceTier
from billing.facade import per_million_string
from headrace.management_api.base import TenantView
from headrace.management_api.paging import asked_limit, asked_uuid, check_query, page_shown
from tenants.contracts import Permission


class TierPrices(serializers.Serializer[Any]):
    """Prices per million tokens, in exact decimals of the currency's unit."""

    currency = serializers.CharField()
    input = serializers.CharField()
    cached_input = serializers.CharField()
    cache_write = serializers.CharField()
    output = serializers.CharField()


class ModelShown(serializers.Serializer[Any]):
    """A name to ask for, and what it means; `model` is what is served under it."""

    object = serializers.CharField()
    id = serializers.CharField()
    model = serializers.CharField()
    display_name = serializers.CharField()
    owned_by = serializers.CharField()
    context_length = serializers.IntegerField()
    max_completion_tokens = serializers.IntegerField()
    status = serializers.ChoiceField(["active", "deprecated"])
    deprecated_at = serializers.DateTimeField(allow_null=True)
    shutdown_at = serializers.DateTimeField(allow_null=True)
    successor = serializers.CharField(allow_null=True)
    interactive = TierPrices()
    batch = TierPrices(allow_null=True)


class ModelsView(TenantView):
    """What may be asked for now."""

    permissions = {"GET": Permission.CATALOG_READ}

    @extend_schema(
        parameters=[
            OpenApiParameter("project_id", UUID, description="With that project's aliases too."),
            OpenApiParameter("limit", int),
            OpenApiParameter("after", str, description="The name behind which the page starts."),
        ],
        responses=page_shown(ModelShown, serializers.CharField),
    )
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Models and aliases by name, with their prices per million tokens."""
        check_query(request, "project_id", "limit", "after")
        limit = asked_limit(request)
        project_id = asked_uuid(request, "project_id")
        sold = billing.facade.models_for_sale(organization_id, project_id)
        batch = dict(billing.facade.models_for_sale(organization_id, project_id, ServiceTier.BATCH))
        after = request.query_params.get("after", "")
        rows = [(name, quote) for name, quote in sold if name > after]
        data = [render_model(name, quote, batch.get(name)) for name, quote in rows[:limit]]
        return Response(
            {
                "object": "list",
                "data": data,
                "first_id": data[0]["id"] if data else None,
                "last_id": data[-1]["id"] if data else None,
                "has_more": len(rows) > limit,
            }
        )


def render_model(name: str, quote: Quote, batch: Quote | None) -> dict[str, Any]:
    """A model for sale as JSON."""
    offer = quote.offer
    return {
        "object": "model",
        "id": name,
        "model": offer.public_id,
        "display_name": offer.display_name,
        "owned_by": offer.owned_by,
        "context_length": offer.context_tokens_max,
        "max_completion_tokens": offer.output_tokens_max,
        "status": "active" if offer.deprecated_at is None else "deprecated",
        "deprecated_at": offer.deprecated_at.isoformat() if offer.deprecated_at else None,
        "shutdown_at": offer.shutdown_at.isoformat() if offer.shutdown_at else None,
        "successor": offer.successor,
        "interactive": render_prices(quote),
        "batch": render_prices(batch) if batch else None,
    }


def render_prices(quote: Quote) -> dict[str, str]:
    """A tier's prices as JSON."""
    assert quote.cache_write_micros_per_mtok is not None, "a quote of the catalog has all prices"
    return {
        "currency": quote.currency,
        "input": per_million_string(quote.input_micros_per_mtok),
        "cached_input": per_million_string(quote.cached_input_micros_per_mtok),
        "cache_write": per_million_string(quote.cache_write_micros_per_mtok),
        "output": per_million_string(quote.output_micros_per_mtok),
    }
