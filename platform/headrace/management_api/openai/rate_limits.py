"""OpenAI's `/v1/organization/projects/{id}/rate_limits`.

A project's limits hold for all its models together, so there is one object, named `*`, and its id
is the project's. What a project does not limit shows the organization's limit, which binds it.
"""

from dataclasses import replace
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import billing.facade
import tenants.facade
from billing.contracts import QuotaMetric, QuotaPeriod, QuotaScope, QuotaWanted
from headrace.management_api.authentication import ApiKeyUser
from headrace.management_api.base import OrganizationKeyView
from headrace.management_api.bodies import Body
from headrace.management_api.minute_limits import LIMIT_MAX
from headrace.management_api.paging import asked_page, page_body, page_shown
from tenants.contracts import KeyIdentity, Permission, ProjectInfo, TenantObjectNotFound


class RateLimitBody(Body):
    """What may be changed; what is left out stays."""

    max_requests_per_1_minute = serializers.IntegerField(
        min_value=1, max_value=LIMIT_MAX, required=False
    )
    max_tokens_per_1_minute = serializers.IntegerField(
        min_value=1, max_value=LIMIT_MAX, required=False
    )
    max_requests_per_1_day = serializers.IntegerField(
        min_value=0, max_value=LIMIT_MAX, required=False
    )


class OpenAiRateLimit(serializers.Serializer[Any]):
    """OpenAI's project rate limit object."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    model = serializers.CharField()
    max_requests_per_1_minute = serializers.IntegerField()
    max_tokens_per_1_minute = serializers.IntegerField()
    max_requests_per_1_day = serializers.IntegerField(required=False)


class _RateLimitView(OrganizationKeyView):
    permissions = {"GET": Permission.LIMITS_READ, "POST": Permission.LIMITS_WRITE}

    def shown(self, project: ProjectInfo) -> dict[str, Any]:
        """OpenAiRateLimit."""
        user: object = self.request.user
        assert isinstance(user, ApiKeyUser)
        of_all: KeyIdentity = user.identity
        limits = project.limits
        shown: dict[str, Any] = {
            "object": "project.rate_limit",
            "id": str(project.project_id),
            "model": "*",
            "max_requests_per_1_minute": limits.requests_max or of_all.requests_per_minute_max,
            "max_tokens_per_1_minute": limits.tokens_max or of_all.tokens_per_minute_max,
        }
        asked = _a_day(project.project_id, 0)
        for quota in billing.facade.quotas(self.actor):
            if replace(quota.wanted, limit_amount=0, counts_cached=True) == asked:
                shown["max_requests_per_1_day"] = quota.wanted.limit_amount
        return shown


class RateLimitsView(_RateLimitView):
    """A project's rate limits."""

    permissions = {"GET": Permission.LIMITS_READ}

    @extend_schema(responses=page_shown(OpenAiRateLimit))
    def get(self, request: Request, project_id: UUID) -> Response:
        """The one there is."""
        page = asked_page(request)
        project = tenants.facade.read_project(self.actor, project_id)
        rows = [] if page.after == project_id else [project]
        return Response(page_body(rows, page, self.shown))


class RateLimitView(_RateLimitView):
    """The rate limit of all models."""

    permissions = {"POST": Permission.LIMITS_WRITE}

    @extend_schema(request=RateLimitBody, responses=OpenAiRateLimit)
    def post(self, request: Request, project_id: UUID, rate_limit_id: UUID) -> Response:
        """Change some of it."""
        body = self.body(RateLimitBody)
        if rate_limit_id != project_id:
            raise TenantObjectNotFound("no such rate limit")
        project = tenants.facade.read_project(self.actor, project_id)
        limits = replace(
            project.limits,
            requests_max=body.get("max_requests_per_1_minute", project.limits.requests_max),
            tokens_max=body.get("max_tokens_per_1_minute", project.limits.tokens_max),
        )
        project = tenants.facade.update_project(self.actor, project_id, limits=limits)
        if "max_requests_per_1_day" in body:
            billing.facade.set_quota(self.actor, _a_day(project_id, body["max_requests_per_1_day"]))
        return Response(self.shown(project))


def _a_day(project_id: UUID, requests_max: int) -> QuotaWanted:
    return QuotaWanted(
        QuotaScope.PROJECT, QuotaMetric.REQUESTS, QuotaPeriod.DAY, requests_max, project_id
    )
