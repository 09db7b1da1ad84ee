"""What models cost an organization, with history: `/api/v1/organizations/{id}/prices`.

The list's prices and those agreed with the organization, which go first; the operator sets both.
"""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import billing.facade
from billing.contracts import PriceSpan
from billing.facade import per_million_string, per_token_string
from headrace.management_api.base import TenantView
from headrace.management_api.paging import asked_flag, asked_page, page_body, page_shown
from tenants.contracts import Permission


class PriceShown(serializers.Serializer[Any]):
    """A price over a span of time, in exact decimals of the currency's unit."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    model = serializers.CharField()
    tier = serializers.ChoiceField(["interactive", "batch"])
    token_class = serializers.ChoiceField(["input", "cached_input", "cache_write", "output"])
    currency = serializers.CharField()
    price_micros_per_mtok = serializers.IntegerField()
    per_million_tokens = serializers.CharField()
    per_token = serializers.CharField()
    effective_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField(allow_null=True)
    in_force = serializers.BooleanField()
    own = serializers.BooleanField()
    book_version = serializers.IntegerField()


class PricesView(TenantView):
    """Prices as they were, are and will be."""

    permissions = {"GET": Permission.CATALOG_READ}

    @extend_schema(
        parameters=[
            OpenApiParameter("model", str, description="A model's own name."),
            OpenApiParameter("in_force", bool, description="Only those that hold now."),
        ],
        responses=page_shown(PriceShown),
    )
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Prices, the latest published first; announced ones are there before they hold."""
        page = asked_page(request, "model", "in_force")
        rows = billing.facade.price_history(
            self.actor,
            page.rows_max,
            page.after,
            public_id=request.query_params.get("model"),
            in_force_only=asked_flag(request, "in_force"),
            ascending=page.ascending,
        )
        now = datetime.now(UTC)
        return Response(page_body(rows, page, lambda span: render_price(span, now)))


def render_price(span: PriceSpan, now: datetime) -> dict[str, Any]:
    """A price as JSON."""
    return {
        "object": "price",
        "id": str(span.price_id),
        "model": span.public_id,
        "tier": span.tier.value,
        "token_class": span.token_class.value,
        "currency": span.currency,
        "price_micros_per_mtok": span.price_micros_per_mtok,
        "per_million_tokens": per_million_string(span.price_micros_per_mtok),
        "per_token": per_token_string(span.price_micros_per_mtok),
        "effective_at": span.effective_at.isoformat(),
        "ends_at": span.ends_at.isoformat() if span.ends_at else None,
        "in_force": span.effective_at <= now and (span.ends_at is None or now < span.ends_at),
        "own": span.own,
        "book_version": span.book_version,
    }
