"""An organization's settings, under `/api/v1/organizations/{id}`.

What a tenant may not set (status, currency, slug, its own minute limits) is in no body.
"""

from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import tenants.facade
from headrace.management_api.base import TenantView
from headrace.management_api.bodies import Body
from headrace.management_api.minute_limits import MinuteLimitsShown, render_limits
from tenants.contracts import OrganizationSettings, OrganizationStatus, Permission


class OrganizationChange(Body):
    """What members may change; what is left out stays."""

    display_name = serializers.CharField(max_length=120)
    time_zone = serializers.CharField(max_length=64)
    cost_tags = serializers.ListField(child=serializers.CharField(max_length=64), max_length=16)
    cache_per_project = serializers.BooleanField()
    second_factor_required = serializers.BooleanField()
    prompts_kept_days = serializers.IntegerField(min_value=1, max_value=365, allow_null=True)


class OrganizationShown(serializers.Serializer[Any]):
    """An organization as its members read it."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    slug = serializers.CharField()
    display_name = serializers.CharField()
    currency = serializers.CharField()
    status = serializers.ChoiceField([status.value for status in OrganizationStatus])
    time_zone = serializers.CharField()
    limits = MinuteLimitsShown()
    cost_tags = serializers.ListField(child=serializers.CharField())
    cache_per_project = serializers.BooleanField()
    second_factor_required = serializers.BooleanField()
    prompts_kept_days = serializers.IntegerField(allow_null=True)
    created_at = serializers.DateTimeField()


class OrganizationView(TenantView):
    """One organization."""

    permissions = {"GET": Permission.ORGANIZATION_READ, "PATCH": Permission.ORGANIZATION_WRITE}
    sensitive: ClassVar[frozenset[str]] = frozenset({"PATCH"})

    @extend_schema(responses=OrganizationShown)
    def get(self, request: Request, organization_id: UUID) -> Response:
        """The organization with its settings."""
        return Response(render_organization(tenants.facade.read_organization(self.actor)))

    @extend_schema(request=OrganizationChange, responses=OrganizationShown)
    def patch(self, request: Request, organization_id: UUID) -> Response:
        """Change settings. The demand for a second factor is set by members who have one."""
        body = self.body(OrganizationChange, partial=True)
        return Response(render_organization(tenants.facade.update_organization(self.actor, **body)))


def render_organization(settings: OrganizationSettings) -> dict[str, Any]:
    """`OrganizationShown`."""
    return {
        "object": "organization",
        "id": str(settings.organization_id),
        "slug": settings.slug,
        "display_name": settings.display_name,
        "currency": settings.currency,
        "status": settings.status.value,
        "time_zone": settings.time_zone,
        "limits": render_limits(settings.limits),
        "cost_tags": list(settings.cost_tags),
        "cache_per_project": settings.cache_per_project,
        "second_factor_required": settings.second_factor_required,
        "prompts_kept_days": settings.prompts_kept_days,
        "created_at": settings.created_at.isoformat(),
    }
