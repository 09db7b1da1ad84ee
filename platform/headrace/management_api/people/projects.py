"""Projects and their service accounts, under `/api/v1/organizations/{id}/`."""

from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import tenants.facade
from headrace.management_api.base import TenantView
from headrace.management_api.bodies import Body
from headrace.management_api.minute_limits import (
    MinuteLimitsBody,
    MinuteLimitsShown,
    limits_of,
    render_limits,
)
from headrace.management_api.paging import asked_flag, asked_page, asked_uuid, page_body, page_shown
from tenants.contracts import NO_LIMITS, Permission, ProjectInfo, ServiceAccount

NAME_CHARS_MAX = 120


class ProjectChange(Body):
    """What may be changed; limits are set all at once."""

    name = serializers.CharField(max_length=NAME_CHARS_MAX)
    limits = MinuteLimitsBody(required=False)


class ProjectShown(serializers.Serializer[Any]):
    """A project as it is read."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    name = serializers.CharField()
    limits = MinuteLimitsShown()
    created_at = serializers.DateTimeField()
    archived_at = serializers.DateTimeField(allow_null=True)


class ServiceAccountBody(Body):
    """A program's account, in which project."""

    name = serializers.CharField(max_length=NAME_CHARS_MAX)
    project_id = serializers.UUIDField()


class ServiceAccountShown(serializers.Serializer[Any]):
    """A service account as it is read."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    name = serializers.CharField()
    project_id = serializers.UUIDField()
    created_at = serializers.DateTimeField()
    disabled_at = serializers.DateTimeField(allow_null=True)


class ProjectsView(TenantView):
    """The organization's projects."""

    permissions = {"GET": Permission.PROJECTS_READ, "POST": Permission.PROJECTS_WRITE}

    @extend_schema(
        parameters=[OpenApiParameter("archived", bool)], responses=page_shown(ProjectShown)
    )
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Projects, newest first; with `archived=true` the archived ones too."""
        page = asked_page(request, "archived")
        rows = tenants.facade.list_projects(
            self.actor,
            with_archived=asked_flag(request, "archived"),
            rows_max=page.rows_max,
            after=page.after,
            ascending=page.ascending,
        )
        return Response(page_body(rows, page, render_project))

    @extend_schema(request=ProjectChange, responses={201: ProjectShown})
    def post(self, request: Request, organization_id: UUID) -> Response:
        """A new project."""
        body = self.body(ProjectChange)
        limits = limits_of(body["limits"]) if "limits" in body else NO_LIMITS
        made = tenants.facade.open_project(self.actor, body["name"], limits)
        return Response(render_project(made), status=201)


class ProjectView(TenantView):
    """One project."""

    permissions = {"GET": Permission.PROJECTS_READ, "PATCH": Permission.PROJECTS_WRITE}
    sensitive: ClassVar[frozenset[str]] = frozenset({"PATCH"})

    @extend_schema(responses=ProjectShown)
    def get(self, request: Request, organization_id: UUID, project_id: UUID) -> Response:
        """The project."""
        return Response(render_project(tenants.facade.read_project(self.actor, project_id)))

    @extend_schema(request=ProjectChange, responses=ProjectShown)
    def patch(self, request: Request, organization_id: UUID, project_id: UUID) -> Response:
        """Rename, or set the minute limits anew."""
        body = self.body(ProjectChange, partial=True)
        changed = tenants.facade.update_project(
            self.actor,
            project_id,
            name=body.get("name"),
            limits=limits_of(body["limits"]) if "limits" in body else None,
        )
        return Response(render_project(changed))


class ProjectArchiveView(TenantView):
    """The end of a project."""

    permissions = {"POST": Permission.PROJECTS_WRITE}

    @extend_schema(request=None, responses=ProjectShown)
    def post(self, request: Request, organization_id: UUID, project_id: UUID) -> Response:
        """Archive for good: its keys stop at once."""
        self.body(Body)
        return Response(render_project(tenants.facade.close_project(self.actor, project_id)))


class ServiceAccountsView(TenantView):
    """The organization's service accounts."""

    permissions = {"GET": Permission.KEYS_READ, "POST": Permission.KEYS_WRITE}

    @extend_schema(
        parameters=[OpenApiParameter("project_id", UUID)], responses=page_shown(ServiceAccountShown)
    )
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Service accounts, newest first; those of one project if asked."""
        page = asked_page(request, "project_id")
        rows = tenants.facade.list_service_accounts(
            self.actor,
            asked_uuid(request, "project_id"),
            rows_max=page.rows_max,
            after=page.after,
            ascending=page.ascending,
        )
        return Response(page_body(rows, page, render_service_account))

    @extend_schema(request=ServiceAccountBody, responses={201: ServiceAccountShown})
    def post(self, request: Request, organization_id: UUID) -> Response:
        """A new account, without keys yet."""
        body = self.body(ServiceAccountBody)
        made = tenants.facade.create_service_account(self.actor, body["project_id"], body["name"])
        return Response(render_service_account(made), status=201)


class ServiceAccountView(TenantView):
    """One service account."""

    permissions = {"GET": Permission.KEYS_READ, "DELETE": Permission.KEYS_WRITE}

    @extend_schema(responses=ServiceAccountShown)
    def get(self, request: Request, organization_id: UUID, service_account_id: UUID) -> Response:
        """The account."""
        found = tenants.facade.read_service_account(self.actor, service_account_id)
        return Response(render_service_account(found))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, organization_id: UUID, service_account_id: UUID) -> Response:
        """Disable for good: its keys stop at once."""
        tenants.facade.disable_service_account(self.actor, service_account_id)
        return Response(status=204)


def render_project(project: ProjectInfo) -> dict[str, Any]:
    """`ProjectShown`."""
    archived_at = project.archived_at
    return {
        "object": "project",
        "id": str(project.project_id),
        "name": project.name,
        "limits": render_limits(project.limits),
        "created_at": project.created_at.isoformat(),
        "archived_at": archived_at.isoformat() if archived_at else None,
    }


def render_service_account(account: ServiceAccount) -> dict[str, Any]:
    """`ServiceAccountShown`."""
    disabled_at = account.disabled_at
    return {
        "object": "service_account",
        "id": str(account.service_account_id),
        "name": account.name,
        "project_id": str(account.project_id),
        "created_at": account.created_at.isoformat(),
        "disabled_at": disabled_at.isoformat() if disabled_at else None,
    }
