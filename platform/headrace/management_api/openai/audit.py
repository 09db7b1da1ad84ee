"""OpenAI's `/v1/organization/audit_logs`: the same log, in its shape.

Types have OpenAI's names where it has one for what was done, and ours elsewhere.
"""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import tenants.facade
from headrace import errors
from headrace.management_api.base import OrganizationKeyView
from headrace.management_api.openai.lists import seconds
from headrace.management_api.paging import asked_page, page_body, page_shown
from headrace.management_api.people.audit import ACTIONS_MAX, asked_texts
from tenants.contracts import ActorKind, AuditEntry, Permission

SECONDS_MAX = 253_402_300_799
"""The last second of the year 9999."""
TYPES = {
    "invitation.accepted": "invite.accepted",
    "invitation.created": "invite.sent",
    "invitation.revoked": "invite.deleted",
    "key.created": "api_key.created",
    "key.imported": "api_key.created",
    "key.revoked": "api_key.deleted",
    "key.rotated": "api_key.updated",
    "key.updated": "api_key.updated",
    "limit.changed": "rate_limit.updated",
    "member.added": "user.added",
    "member.removed": "user.deleted",
    "project.renamed": "project.updated",
    "role.changed": "user.updated",
    "service_account.disabled": "service_account.deleted",
    "user.sign_in_failed": "login.failed",
    "user.signed_in": "login.succeeded",
    "user.signed_out": "logout.succeeded",
}
"""What OpenAI calls our actions, where the names differ."""
SINCE, UNTIL = "effective_at[gte]", "effective_at[lt]"


class OpenAiAuditLog(serializers.Serializer[Any]):
    """OpenAI's audit log object; `type` is our action, what it did is in `details`."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    type = serializers.CharField()
    effective_at = serializers.IntegerField()
    actor = serializers.DictField()
    resource = serializers.DictField()
    details = serializers.DictField()


class OpenAiAuditLogsView(OrganizationKeyView):
    """The audit log."""

    permissions = {"GET": Permission.AUDIT_READ}

    @extend_schema(
        parameters=[
            OpenApiParameter("event_types[]", str, many=True),
            OpenApiParameter("actor_ids[]", UUID, many=True, description="One at most."),
            OpenApiParameter("resource_ids[]", str, many=True, description="One at most."),
            OpenApiParameter(SINCE, int),
            OpenApiParameter(UNTIL, int),
        ],
        responses=page_shown(OpenAiAuditLog),
    )
    def get(self, request: Request) -> Response:
        """Entries, newest first."""
        page = asked_page(request, "event_types[]", "actor_ids[]", "resource_ids[]", SINCE, UNTIL)
        actors = asked_texts(request, "actor_ids[]", 1)
        targets = asked_texts(request, "resource_ids[]", 1)
        try:
            actor_id = UUID(actors[0]) if actors else None
        except ValueError:
            raise errors.invalid("'actor_ids[]' must be an id.", "actor_ids[]") from None
        wanted = tenants.facade.AuditFilter(
            actions=_asked_actions(request),
            actor_id=actor_id,
            target_id=targets[0] if targets else None,
            since=_asked_moment(request, SINCE),
            until=_asked_moment(request, UNTIL),
        )
        rows = tenants.facade.list_audit(
            self.actor,
            wanted,
            rows_max=page.rows_max,
            after=page.after,
            ascending=page.ascending,
        )
        return Response(page_body(rows, page, render_openai_entry))


def _asked_actions(request: Request) -> tuple[str, ...]:
    """Our actions of the types asked for, under either name."""
    types = asked_texts(request, "event_types[]", ACTIONS_MAX)
    return (*types, *(action for action, name in TYPES.items() if name in types))


def _asked_moment(request: Request, name: str) -> datetime | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or int(text[:13]) > SECONDS_MAX:
        raise errors.invalid(f"'{name}' must be a time in seconds.", name)
    return datetime.fromtimestamp(int(text), UTC)


def render_openai_entry(entry: AuditEntry) -> dict[str, Any]:
    """`OpenAiAuditLog`."""
    actor_id = str(entry.actor_id) if entry.actor_id else None
    actor: dict[str, Any]
    if entry.actor_kind is ActorKind.USER:
        actor = {
            "type": "session",
            "session": {"user": {"id": actor_id}, "ip_address": entry.ip},
        }
    elif entry.actor_kind is ActorKind.API_KEY:
        actor = {"type": "api_key", "api_key": {"id": actor_id, "ip_address": entry.ip}}
    else:
        actor = {"type": None, "kind": entry.actor_kind.value}
    return {
        "object": "organization.audit_log",
        "id": str(entry.entry_id),
        "type": TYPES.get(entry.action, entry.action),
        "effective_at": seconds(entry.occurred_at),
        "actor": actor,
        "resource": {"type": entry.target_kind, "id": entry.target_id},
        "details": dict(entry.details),
    }
