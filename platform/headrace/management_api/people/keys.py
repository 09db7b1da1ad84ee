"""API keys of both kinds, under `/api/v1/organizations/{id}/keys`.

A secret is in the answer that made it and nowhere else; nothing here can read one later.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import tenants.facade
from headrace import errors
from headrace.management_api.base import TenantView
from headrace.management_api.bodies import Body
from headrace.management_api.minute_limits import (
    MinuteLimitsBody,
    MinuteLimitsShown,
    limits_of,
    render_limits,
)
from headrace.management_api.paging import asked_page, asked_uuid, page_body, page_shown
from tenants.contracts import IssuedKey, KeyInfo, KeyKind, KeyScope, KeySettings, Permission

KINDS = [kind.value for kind in KeyKind]
SCOPES = [scope.value for scope in KeyScope]
PERMISSIONS = [permission.value for permission in Permission]
OF_PROJECTS_ALONE = ("scopes", "models", "limits", "end_user_limits")
GRACE_S_MAX = 30 * 24 * 3600


class KeyChange(Body):
    """What may be changed; of an admin key its name, networks and expiry."""

    name = serializers.CharField(max_length=120)
    scopes = serializers.ListField(child=serializers.ChoiceField(SCOPES), required=False)
    models = serializers.ListField(
        child=serializers.CharField(max_length=120),
        max_length=200,
        allow_null=True,
        required=False,
        help_text="The only models it may use, by the id that serves; null is all.",
    )
    cidrs = serializers.ListField(
        child=serializers.CharField(max_length=43), max_length=100, required=False
    )
    expires_at = serializers.DateTimeField(allow_null=True, required=False)
    limits = MinuteLimitsBody(required=False)
    end_user_limits = MinuteLimitsBody(required=False)


class KeyBody(KeyChange):
    """A new key: of a project, or (with permissions) to administer the organization."""

    kind = serializers.ChoiceField(KINDS, default=KeyKind.PROJECT.value)
    project_id = serializers.UUIDField(required=False)
    service_account_id = serializers.UUIDField(required=False)
    permissions = serializers.ListField(child=serializers.ChoiceField(PERMISSIONS), required=False)


class RotateBody(Body):
    """How long the old key works beside its successor."""

    grace_s = serializers.IntegerField(min_value=0, max_value=GRACE_S_MAX, default=0)


class KeyShown(serializers.Serializer[Any]):
    """A key as it is read: `prefix` and `last4` are all that is shown of its secret."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    kind = serializers.ChoiceField(KINDS)
    name = serializers.CharField()
    prefix = serializers.CharField()
    last4 = serializers.CharField()
    project_id = serializers.UUIDField(allow_null=True)
    service_account_id = serializers.UUIDField(allow_null=True)
    created_by = serializers.UUIDField(allow_null=True)
    scopes = serializers.ListField(child=serializers.ChoiceField(SCOPES))
    permissions = serializers.ListField(child=serializers.ChoiceField(PERMISSIONS))
    models = serializers.ListField(child=serializers.CharField(), allow_null=True)
    cidrs = serializers.ListField(child=serializers.CharField())
    limits = MinuteLimitsShown()
    end_user_limits = MinuteLimitsShown()
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)
    revoke_at = serializers.DateTimeField(allow_null=True)
    replaced_by = serializers.UUIDField(allow_null=True)


class KeyMade(KeyShown):
    """A new key, with its secret this once."""

    key = serializers.CharField()


class KeysView(TenantView):
    """The organization's keys."""

    permissions = {"GET": Permission.KEYS_READ, "POST": Permission.KEYS_WRITE}
    sensitive: ClassVar[frozenset[str]] = frozenset({"POST"})

    @extend_schema(
        parameters=[
            OpenApiParameter("kind", str, enum=KINDS),
            OpenApiParameter("project_id", UUID),
        ],
        responses=page_shown(KeyShown),
    )
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Keys of a kind (projects' unless asked), newest first; of one project if asked."""
        page = asked_page(request, "kind", "project_id")
        kind = request.query_params.get("kind", KeyKind.PROJECT.value)
        if kind not in KINDS:
            raise errors.invalid("'kind' must be 'project' or 'admin'.", "kind")
        rows = tenants.facade.list_keys(
            self.actor,
            KeyKind(kind),
            asked_uuid(request, "project_id"),
            rows_max=page.rows_max,
            after=page.after,
            ascending=page.ascending,
        )
        return Response(page_body(rows, page, render_key))

    @extend_schema(request=KeyBody, responses={201: KeyMade})
    def post(self, request: Request, organization_id: UUID) -> Response:
        """A new key; its secret is in `key`, this once."""
        body = self.body(KeyBody)
        issued = self._admin_key(body) if body["kind"] == KeyKind.ADMIN else self._key(body)
        return Response(self.made(issued), status=201)

    def _admin_key(self, body: dict[str, Any]) -> IssuedKey:
        _refuse(body, "an admin key", "project_id", "service_account_id", *OF_PROJECTS_ALONE)
        if "permissions" not in body:
            raise errors.invalid("'permissions': an admin key needs some.", "permissions")
        return tenants.facade.create_admin_key(
            self.actor,
            body["name"],
            frozenset(Permission(name) for name in body["permissions"]),
            tuple(body.get("cidrs", ())),
            body.get("expires_at"),
        )

    def _key(self, body: dict[str, Any]) -> IssuedKey:
        _refuse(body, "a project's key", "permissions")
        if "project_id" not in body:
            raise errors.invalid("'project_id': a project's key needs one.", "project_id")
        settings = _change(body)(KeySettings(body["name"]))
        return tenants.facade.create_key(
            self.actor, body["project_id"], settings, body.get("service_account_id")
        )

    def made(self, issued: IssuedKey) -> dict[str, Any]:
        """`KeyMade` of a key that was just made."""
        info = tenants.facade.key_made(self.actor, issued)
        return render_key(info) | {"key": issued.secret}


class KeyView(TenantView):
    """One key."""

    permissions = {"GET": Permission.KEYS_READ, "PATCH": Permission.KEYS_WRITE}
    sensitive: ClassVar[frozenset[str]] = frozenset({"PATCH"})

    @extend_schema(responses=KeyShown)
    def get(self, request: Request, organization_id: UUID, key_id: UUID) -> Response:
        """The key, without its secret."""
        return Response(render_key(tenants.facade.read_key(self.actor, key_id)))

    @extend_schema(request=KeyChange, responses=KeyShown)
    def patch(self, request: Request, organization_id: UUID, key_id: UUID) -> Response:
        """Change settings, from now on; what is left out stays."""
        body = self.body(KeyChange, partial=True)
        return Response(render_key(tenants.facade.update_key(self.actor, key_id, _change(body))))


class KeyRotateView(TenantView):
    """A new secret for the same purpose."""

    permissions = {"POST": Permission.KEYS_WRITE}
    sensitive: ClassVar[frozenset[str]] = frozenset({"POST"})

    @extend_schema(request=RotateBody, responses={201: KeyMade})
    def post(self, request: Request, organization_id: UUID, key_id: UUID) -> Response:
        """A successor with the same settings; the old key stops `grace_s` from now.

        A key is rotated once; rotating its successor leaves the end of the first grace alone.
        """
        grace_s = self.body(RotateBody)["grace_s"]
        issued = tenants.facade.rotate_key(self.actor, key_id, grace_s)
        info = tenants.facade.key_made(self.actor, issued)
        return Response(render_key(info) | {"key": issued.secret}, status=201)


class KeyRevokeView(TenantView):
    """The end of a key."""

    permissions = {"POST": Permission.KEYS_WRITE}

    @extend_schema(request=None, responses=KeyShown)
    def post(self, request: Request, organization_id: UUID, key_id: UUID) -> Response:
        """Revoke at once and for good; again changes nothing."""
        self.body(Body)
        return Response(render_key(tenants.facade.revoke_key_as(self.actor, key_id)))


def _refuse(body: dict[str, Any], of: str, *names: str) -> None:
    for name in names:
        if name in body:
            raise errors.invalid(f"'{name}' is not a setting of {of}.", name)


def _change(body: dict[str, Any]) -> Callable[[KeySettings], KeySettings]:
    """What a validated body makes of settings."""
    given: dict[str, Any] = {name: body[name] for name in ("name", "expires_at") if name in body}
    if "scopes" in body:
        given["scopes"] = frozenset(KeyScope(scope) for scope in body["scopes"])
    if "models" in body:
        given["models"] = None if body["models"] is None else frozenset(body["models"])
    if "cidrs" in body:
        given["cidrs"] = tuple(body["cidrs"])
    for name in ("limits", "end_user_limits"):
        if name in body:
            given[name] = limits_of(body[name])
    return lambda settings: replace(settings, **given)


def render_key(key: KeyInfo) -> dict[str, Any]:
    """`KeyShown`."""
    settings = key.settings

    def shown(value: object) -> str | None:
        return None if value is None else str(value)

    moments = {
        name: None if moment is None else moment.isoformat()
        for name, moment in (
            ("created_at", key.created_at),
            ("expires_at", settings.expires_at),
            ("last_used_at", key.last_used_at),
            ("revoked_at", key.revoked_at),
            ("revoke_at", key.revoke_at),
        )
    }
    return {
        "object": "api_key",
        "id": str(key.key_id),
        "kind": key.kind.value,
        "name": settings.name,
        "prefix": key.prefix,
        "last4": key.last4,
        "project_id": shown(key.project_id),
        "service_account_id": shown(key.service_account_id),
        "created_by": shown(key.created_by),
        "scopes": sorted(settings.scopes) if key.kind is KeyKind.PROJECT else [],
        "permissions": sorted(key.permissions),
        "models": None if settings.models is None else sorted(settings.models),
        "cidrs": list(settings.cidrs),
        "limits": render_limits(settings.limits),
        "end_user_limits": render_limits(settings.end_user_limits),
        **moments,
        "replaced_by": shown(key.replaced_by),
    }
