"""Recent requests of an organization, and the receipt of each.

Reads only; prompts are nowhere in them.
"""

from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import billing.facade
from billing.contracts import ReceiptNotFound, RequestFilter, RequestSummary, ServiceTier
from headrace import errors
from headrace.gateway.request_ids import parse_request_id, public_request_id
from headrace.management_api.base import TenantView
from headrace.management_api.bodies import money
from headrace.management_api.paging import Page, asked_page, page_shown
from headrace.management_api.usage.receipts import (
    ReceiptShown,
    TimingsShown,
    TokensShown,
    render_receipt,
)
from headrace.management_api.usage.report_query import END_USER, asked_instant
from headrace.management_api.usage.reports import organization_zone
from tenants.contracts import Permission

FILTERS = (
    *("start_time", "end_time", "project_id", "api_key_id", "model", "tier", "finish_reason"),
    *("failed", "user_id", "tag", "tag_value"),
)
TEXT_CHARS_MAX = 128
PARAMETERS = [
    OpenApiParameter("limit", OpenApiTypes.INT),
    OpenApiParameter("after", OpenApiTypes.STR, description="a request id"),
    OpenApiParameter("order", OpenApiTypes.STR, enum=["desc", "asc"]),
    *(OpenApiParameter(name, OpenApiTypes.STR) for name in FILTERS),
]


class RequestShown(serializers.Serializer[Any]):
    """One settled request."""

    object = serializers.ChoiceField(["usage.request"])
    id = serializers.CharField()
    held_at = serializers.DateTimeField()
    settled_at = serializers.DateTimeField()
    project_id = serializers.UUIDField()
    api_key_id = serializers.UUIDField()
    tier = serializers.ChoiceField([tier.value for tier in ServiceTier])
    model_asked = serializers.CharField()
    model_served = serializers.CharField()
    finish_reason = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment]  # a field, as DRF means it
    tokens = TokensShown()
    currency = serializers.CharField()
    amount_pico = serializers.CharField()
    amount = serializers.CharField()
    timings_ms = TimingsShown()
    user_id = serializers.CharField(allow_null=True)
    tags = serializers.DictField(child=serializers.CharField())


class RequestsView(TenantView):
    """Settled requests, newest first."""

    permissions = {"GET": Permission.REQUESTS_READ}

    @extend_schema(parameters=PARAMETERS, responses=page_shown(RequestShown, serializers.CharField))
    def get(self, request: Request, organization_id: UUID) -> Response:
        """One page; `last_id` is where the next one goes on."""
        page = asked_page(request, *FILTERS, parse_id=_request_id)
        wanted = _filter(request, organization_zone(organization_id))
        found = billing.facade.recent_requests(
            organization_id, wanted, page.rows_max, page.after, ascending=page.ascending
        )
        shown = [_render(one) for one in found.requests[: page.limit]]
        return Response(
            {
                "object": "list",
                "data": shown,
                "first_id": shown[0]["id"] if shown else None,
                "last_id": _last_id(shown, found.goes_on_after, page),
                "has_more": len(found.requests) > page.limit or found.goes_on_after is not None,
            }
        )


class RequestView(TenantView):
    """The receipt of one request of the organization; anybody else's is 404."""

    permissions = {"GET": Permission.REQUESTS_READ}

    @extend_schema(responses=ReceiptShown)
    def get(self, request: Request, organization_id: UUID, request_id: str) -> Response:
        """What it was held, counted and charged for."""
        parsed = parse_request_id(request_id)
        if parsed is None:
            raise ReceiptNotFound(request_id)
        return Response(render_receipt(billing.facade.receipt(organization_id, parsed)))


def _request_id(text: str) -> UUID:
    """Raises ValueError for what is no request's id."""
    parsed = parse_request_id(text)
    if parsed is None:
        raise ValueError(text)
    return parsed


def _last_id(shown: list[dict[str, Any]], goes_on_after: UUID | None, page: Page) -> str | None:
    """Where the next page goes on: behind the last shown, or behind all that was looked at."""
    if goes_on_after is not None and len(shown) < page.limit:
        return public_request_id(goes_on_after)
    return shown[-1]["id"] if shown else None


def _filter(request: Request, time_zone: str) -> RequestFilter:
    """Raises ApiError 400 that names the parameter."""
    texts = {name: request.query_params.get(name) for name in FILTERS}
    for name, text in texts.items():
        if text is not None and (not 1 <= len(text) <= TEXT_CHARS_MAX or "\0" in text):
            raise errors.invalid(f"'{name}' has a value that cannot be.", name)
    if texts["failed"] not in (None, "true"):
        raise errors.invalid("'failed' must be 'true', or left out.", "failed")
    if (texts["tag"] is None) != (texts["tag_value"] is None):
        raise errors.invalid("'tag' and 'tag_value' go together.", "tag_value")
    if texts["tag"] is not None and texts["user_id"] is not None:
        raise errors.invalid("A list looks at a user or at one tag, not at both.", "tag")
    tier = texts["tier"]
    if tier is not None and tier not in set(ServiceTier):
        raise errors.invalid("'tier' must be 'interactive' or 'batch'.", "tier")
    return RequestFilter(
        start_at=asked_instant(request, "start_time", time_zone),
        end_at=asked_instant(request, "end_time", time_zone),
        project_id=_id(texts, "project_id"),
        key_id=_id(texts, "api_key_id"),
        model=texts["model"],
        tier=None if tier is None else ServiceTier(tier),
        finish_reason=texts["finish_reason"],
        errors_only=texts["failed"] is not None,
        tag=texts["tag"] if texts["user_id"] is None else END_USER,
        tag_value=texts["tag_value"] or texts["user_id"] or "",
    )


def _id(texts: dict[str, str | None], name: str) -> UUID | None:
    text = texts[name]
    try:
        return None if text is None else UUID(text)
    except ValueError:
        raise errors.invalid(f"'{name}' must be an id.", name) from None


def _render(one: RequestSummary) -> dict[str, Any]:
    return {
        "object": "usage.request",
        "id": public_request_id(one.request_id),
        "held_at": one.held_at.isoformat(),
        "settled_at": one.occurred_at.isoformat(),
        "project_id": str(one.project_id),
        "api_key_id": str(one.key_id),
        "tier": one.tier.value,
        "model_asked": one.model_asked,
        "model_served": one.model_served,
        "finish_reason": one.finish_reason,
        "source": one.source.value,
        "tokens": {
            "uncached_input": one.counts.uncached_input_tokens,
            "cached_input": one.counts.cached_input_tokens,
            "output": one.counts.output_tokens,
        },
        "currency": one.currency,
        **money(one.charge_pico),
        "timings_ms": {
            "queue": one.queue_ms,
            "prefill": one.prefill_ms,
            "decode": one.decode_ms,
        },
        "user_id": one.end_user or None,
        "tags": dict(one.tags),
    }
