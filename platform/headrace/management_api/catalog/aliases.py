"""A tenant's own names for models, under `/api/v1/organizations/{id}/aliases`."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import billing.facade
from billing.contracts import Alias
from headrace.management_api.base import TenantView
from headrace.management_api.bodies import Body
from headrace.management_api.paging import asked_page, asked_uuid, page_body, page_shown
from tenants.contracts import Permission

NAME_CHARS_MAX = 128


class AliasChange(Body):
    """What an alias shall mean."""

    model = serializers.CharField(max_length=NAME_CHARS_MAX)


class AliasBody(AliasChange):
    """A new alias, of one project or (without one) of the whole organization."""

    name = serializers.CharField(max_length=NAME_CHARS_MAX)
    project_id = serializers.UUIDField(required=False, allow_null=True)


class AliasShown(serializers.Serializer[Any]):
    """An alias as it is read."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    name = serializers.CharField()
    model = serializers.CharField()
    project_id = serializers.UUIDField(allow_null=True)
    created_at = serializers.DateTimeField()


class AliasesView(TenantView):
    """The organization's aliases."""

    permissions = {"GET": Permission.CATALOG_READ, "POST": Permission.CATALOG_WRITE}

    @extend_schema(
        parameters=[OpenApiParameter("project_id", UUID, description="Those a project sees.")],
        responses=page_shown(AliasShown),
    )
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Aliases, newest first; with `project_id`, that project's and the organization's."""
        page = asked_page(request, "project_id")
        rows = billing.facade.aliases(
            self.actor,
            page.rows_max,
            page.after,
            project_id=asked_uuid(request, "project_id"),
            ascending=page.ascending,
        )
        return Response(page_body(rows, page, render_alias))

    @extend_schema(request=AliasBody, responses={201: AliasShown})
    def post(self, request: Request, organization_id: UUID) -> Response:
        """Let a name mean a model from now on; it goes before a model of that name."""
        body = self.body(AliasBody)
        created = billing.facade.create_alias(
            self.actor, body["name"], body["model"], body.get("project_id")
        )
        return Response(render_alias(created), status=201)


class AliasView(TenantView):
    """One alias."""

    permissions = {
        "GET": Permission.CATALOG_READ,
        "PATCH": Permission.CATALOG_WRITE,
        "DELETE": Permission.CATALOG_WRITE,
    }

    @extend_schema(responses=AliasShown)
    def get(self, request: Request, organization_id: UUID, alias_id: UUID) -> Response:
        """The alias."""
        return Response(render_alias(billing.facade.alias(self.actor, alias_id)))

    @extend_schema(request=AliasChange, responses=AliasShown)
    def patch(self, request: Request, organization_id: UUID, alias_id: UUID) -> Response:
        """Let it mean another model from now on."""
        model = self.body(AliasChange)["model"]
        return Response(render_alias(billing.facade.update_alias(self.actor, alias_id, model)))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, organization_id: UUID, alias_id: UUID) -> Response:
        """Remove it: the name means what it did without."""
        billing.facade.delete_alias(self.actor, alias_id)
        return Response(status=204)


def render_alias(alias: Alias) -> dict[str, Any]:
    """An alias as JSON."""
    return {
        "object": "alias",
        "id": str(alias.alias_id),
        "name": alias.name,
        "model": alias.public_id,
        "project_id": str(alias.project_id) if alias.project_id else None,
        "created_at": alias.created_at.isoformat(),
    }
