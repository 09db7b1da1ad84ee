"""Taking an organization's data out, and deleting it, under `/api/v1/organizations/{id}/`.

An export is written by a worker and downloaded in parts; a deletion takes two steps, an owner and
a fresh sign-in. Also here: kept prompts, for those who may read them.
"""

from collections.abc import AsyncIterator
from typing import Any, ClassVar
from uuid import UUID

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import tenants.facade
from headrace.gateway.database import in_database
from headrace.gateway.request_ids import parse_request_id, public_request_id
from headrace.management_api.base import TenantView
from headrace.management_api.bodies import Body
from headrace.management_api.paging import asked_page, page_body, page_shown
from tenants.contracts import Actor, Permission
from tenants.contracts.retention import ExchangeNotFound, Export

SLUG_CHARS_MAX = 63
TOKEN_CHARS_MAX = 64


class ExportShown(serializers.Serializer[Any]):
    """An export as it is read."""

    object = serializers.ChoiceField(["export"])
    id = serializers.UUIDField()
    state = serializers.ChoiceField(["pending", "ready", "failed"])
    created_at = serializers.DateTimeField()
    ready_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField()
    size_bytes = serializers.IntegerField(allow_null=True)


class DeletionShown(serializers.Serializer[Any]):
    """A deletion that waits for its confirmation."""

    object = serializers.ChoiceField(["organization.deletion"])
    token = serializers.CharField()
    expires_at = serializers.DateTimeField()


class DeletionConfirmation(Body):
    """The token of the first step, and the organization's slug, typed."""

    token = serializers.CharField(max_length=TOKEN_CHARS_MAX)
    slug = serializers.CharField(max_length=SLUG_CHARS_MAX)


class ExchangeShown(serializers.Serializer[Any]):
    """A request's prompt and answer, as they went over the wire."""

    object = serializers.ChoiceField(["request.exchange"])
    id = serializers.CharField()
    project_id = serializers.UUIDField()
    prompt = serializers.CharField()
    answer = serializers.CharField()
    truncated = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()


class ExportsView(TenantView):
    """The organization's exports."""

    permissions = {"GET": Permission.DATA_EXPORT, "POST": Permission.DATA_EXPORT}
    sensitive: ClassVar[frozenset[str]] = frozenset({"POST"})

    @extend_schema(responses=page_shown(ExportShown))
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Exports that have not expired, newest first."""
        page = asked_page(request)
        rows = tenants.facade.list_exports(
            self.actor, rows_max=page.rows_max, after=page.after, ascending=page.ascending
        )
        return Response(page_body(rows, page, render_export))

    @extend_schema(request=None, responses={202: ExportShown})
    def post(self, request: Request, organization_id: UUID) -> Response:
        """Have an export written; 409 while another one is. An event tells when it is ready."""
        self.body(Body)
        return Response(render_export(tenants.facade.request_export(self.actor)), status=202)


class ExportView(TenantView):
    """One export."""

    permissions = {"GET": Permission.DATA_EXPORT}

    @extend_schema(responses=ExportShown)
    def get(self, request: Request, organization_id: UUID, export_id: UUID) -> Response:
        """Whether it is ready."""
        return Response(render_export(tenants.facade.read_export(self.actor, export_id)))


class ExportContentView(TenantView):
    """What an export holds."""

    permissions = {"GET": Permission.DATA_EXPORT}
    sensitive: ClassVar[frozenset[str]] = frozenset({"GET"})

    @extend_schema(responses={(200, "application/zip"): OpenApiTypes.BINARY})
    def get(
        self, request: Request, organization_id: UUID, export_id: UUID
    ) -> StreamingHttpResponse:
        """The ZIP: a file of JSON lines for each table."""
        export = tenants.facade.open_export(self.actor, export_id)
        return StreamingHttpResponse(
            _parts(self.actor, export_id),
            content_type="application/zip",
            headers={
                "content-length": str(export.size_bytes),
                "content-disposition": f'attachment; filename="export-{export_id}.zip"',
                "cache-control": "no-store",
                "x-content-type-options": "nosniff",
            },
        )


class DeletionView(TenantView):
    """The first step of deleting the organization."""

    permissions = {"POST": Permission.ORGANIZATION_DELETE}
    sensitive: ClassVar[frozenset[str]] = frozenset({"POST"})

    @extend_schema(request=None, responses={201: DeletionShown})
    def post(self, request: Request, organization_id: UUID) -> Response:
        """A token to confirm with, within the hour. Nothing is deleted yet."""
        asked = tenants.facade.request_erasure(self.actor)
        body = {
            "object": "organization.deletion",
            "token": asked.token,
            "expires_at": asked.expires_at.isoformat(),
        }
        return Response(body, status=201)


class DeletionConfirmationView(TenantView):
    """The second step."""

    permissions = {"POST": Permission.ORGANIZATION_DELETE}
    sensitive: ClassVar[frozenset[str]] = frozenset({"POST"})

    @extend_schema(request=DeletionConfirmation, responses={202: None})
    def post(self, request: Request, organization_id: UUID) -> Response:
        """Delete the organization for good: its keys die now, its data within minutes."""
        body = self.body(DeletionConfirmation)
        tenants.facade.confirm_erasure(self.actor, body["token"], body["slug"])
        return Response(status=202)


class ExchangeView(TenantView):
    """The prompt and answer of a request, where the organization keeps them."""

    permissions = {"GET": Permission.REQUESTS_READ}

    @extend_schema(responses=ExchangeShown)
    def get(self, request: Request, organization_id: UUID, request_id: str) -> Response:
        """What was asked and answered; 404 where nothing is kept."""
        parsed = parse_request_id(request_id)
        if parsed is None:
            raise ExchangeNotFound("no such request")
        exchange = tenants.facade.read_exchange(self.actor, parsed)
        body = {
            "object": "request.exchange",
            "id": public_request_id(exchange.request_id),
            "project_id": str(exchange.project_id),
            "prompt": exchange.prompt,
            "answer": exchange.answer,
            "truncated": exchange.truncated,
            "created_at": exchange.created_at.isoformat(),
            "expires_at": exchange.expires_at.isoformat(),
        }
        return Response(body, headers={"cache-control": "no-store"})


def render_export(export: Export) -> dict[str, Any]:
    """The export as JSON."""
    return {
        "object": "export",
        "id": str(export.export_id),
        "state": export.state,
        "created_at": export.created_at.isoformat(),
        "ready_at": export.ready_at.isoformat() if export.ready_at else None,
        "expires_at": export.expires_at.isoformat(),
        "size_bytes": export.size_bytes,
    }


async def _parts(actor: Actor, export_id: UUID) -> AsyncIterator[bytes]:
    """One transaction a part; no thread waits while a slow client reads."""
    number = 0
    while True:
        part = await in_database(tenants.facade.export_part, actor, export_id, number)
        if part is None:
            return
        yield part
        number += 1
