"""The audit log, under `/api/v1/organizations/{id}/audit_log`: read, filtered, paged, verified."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import tenants.facade
from headrace import errors
from headrace.gateway.request_ids import public_request_id
from headrace.management_api.base import TenantView
from headrace.management_api.paging import asked_page, asked_uuid, page_body, page_shown
from tenants.contracts import ActorKind, AuditEntry, Permission

TEXT_CHARS_MAX = 128
ACTIONS_MAX = 50


class AuditEntryShown(serializers.Serializer[Any]):
    """Something that was done; ids only."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    sequence = serializers.IntegerField()
    occurred_at = serializers.DateTimeField()
    action = serializers.CharField()
    actor_kind = serializers.ChoiceField([kind.value for kind in ActorKind])
    actor_id = serializers.UUIDField(allow_null=True)
    ip = serializers.CharField()
    request_id = serializers.CharField(allow_null=True)
    target_kind = serializers.CharField()
    target_id = serializers.CharField()
    details = serializers.DictField()


class AuditVerdictShown(serializers.Serializer[Any]):
    """Whether the chain is whole."""

    object = serializers.CharField()
    entries = serializers.IntegerField()
    intact = serializers.BooleanField()
    fault = serializers.CharField(allow_null=True)


class AuditLogView(TenantView):
    """What was done in the organization."""

    permissions = {"GET": Permission.AUDIT_READ}

    @extend_schema(
        parameters=[
            OpenApiParameter("actions[]", str, many=True),
            OpenApiParameter("actor_id", UUID),
            OpenApiParameter("target_kind", str),
            OpenApiParameter("target_id", str),
            OpenApiParameter("since", str, description="Inclusive, with an offset."),
            OpenApiParameter("until", str, description="Exclusive, with an offset."),
        ],
        responses=page_shown(AuditEntryShown),
    )
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Entries, newest first."""
        filters = ("actions[]", "actor_id", "target_kind", "target_id", "since", "until")
        page = asked_page(request, *filters)
        rows = tenants.facade.list_audit(
            self.actor,
            _asked_filter(request),
            rows_max=page.rows_max,
            after=page.after,
            ascending=page.ascending,
        )
        return Response(page_body(rows, page, render_entry))


class AuditVerdictView(TenantView):
    """Whether anybody changed the log."""

    permissions = {"GET": Permission.AUDIT_READ}

    @extend_schema(responses=AuditVerdictShown)
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Walk the chain; a changed, missing or moved entry is named in `fault`."""
        verdict = tenants.facade.verify_audit_chain(self.actor.organization_id)
        return Response(
            {
                "object": "audit_log.verdict",
                "entries": verdict.entries,
                "intact": verdict.fault is None,
                "fault": verdict.fault,
            }
        )


def _asked_filter(request: Request) -> tenants.facade.AuditFilter:
    query = request.query_params
    moment = serializers.DateTimeField()
    moments = {}
    for name in ("since", "until"):
        try:
            moments[name] = moment.to_internal_value(query[name]) if name in query else None
        except serializers.ValidationError:
            raise errors.invalid(f"'{name}' must be a time as in RFC 3339.", name) from None
    return tenants.facade.AuditFilter(
        actions=asked_texts(request, "actions[]", ACTIONS_MAX),
        actor_id=asked_uuid(request, "actor_id"),
        target_kind=_asked_text(request, "target_kind"),
        target_id=_asked_text(request, "target_id"),
        **moments,
    )


def asked_texts(request: Request, name: str, values_max: int) -> tuple[str, ...]:
    """The values of a repeated parameter; raises ApiError 400 for too many or too long ones."""
    values = request.query_params.getlist(name)
    if len(values) > values_max or any(len(value) > TEXT_CHARS_MAX for value in values):
        raise errors.invalid(f"'{name}' takes at most {values_max} short values.", name)
    return tuple(values)


def _asked_text(request: Request, name: str) -> str | None:
    values = asked_texts(request, name, 1)
    return values[0] if values else None


def render_entry(entry: AuditEntry) -> dict[str, Any]:
    """`AuditEntryShown`."""
    request_id = entry.request_id
    return {
        "object": "audit_log.entry",
        "id": str(entry.entry_id),
        "sequence": entry.sequence,
        "occurred_at": entry.occurred_at.isoformat(),
        "action": entry.action,
        "actor_kind": entry.actor_kind.value,
        "actor_id": str(entry.actor_id) if entry.actor_id else None,
        "ip": entry.ip,
        "request_id": public_request_id(request_id) if request_id else None,
        "target_kind": entry.target_kind,
        "target_id": entry.target_id,
        "details": entry.details,
    }
