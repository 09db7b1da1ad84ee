"""OpenAI's `/v1/organization/users`, `invites` and `admin_api_keys`.

The same facades and permissions as the management API. Roles are ours, and OpenAI's `reader` is
taken for our viewer; an invite, whose role can be but `owner` or `reader` there, says ours beside.
"""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import tenants.facade
from headrace.management_api.base import OrganizationKeyView
from headrace.management_api.bodies import Body
from headrace.management_api.openai.lists import DeletedShown, deleted, seconds
from headrace.management_api.paging import asked_page, page_body, page_shown
from headrace.management_api.people.members import state_of
from tenants.contracts import (
    Invitation,
    KeyInfo,
    KeyKind,
    Member,
    Permission,
    Role,
    TenantObjectNotFound,
)

READER = "reader"
ROLES = [role.value for role in Role]
PERMISSIONS = [permission.value for permission in Permission]
EXPIRES_S_MAX = 10 * 366 * 24 * 3600
INVITE = "organization.invite"
USER = "organization.user"
ADMIN_KEY = "organization.admin_api_key"
INVITE_STATUSES = {"open": "pending", "revoked": "expired"}


class OpenAiRoleBody(Body):
    """Another role."""

    role = serializers.ChoiceField([*ROLES, READER])


class OpenAiInviteBody(OpenAiRoleBody):
    """Whom to invite, as what."""

    email = serializers.EmailField(max_length=254)


class OpenAiAdminKeyBody(Body):
    """A new admin key; without permissions it has those of the key that makes it."""

    name = serializers.CharField(max_length=120)
    expires_in_seconds = serializers.IntegerField(
        min_value=1, max_value=EXPIRES_S_MAX, required=False, allow_null=True
    )
    permissions = serializers.ListField(child=serializers.ChoiceField(PERMISSIONS), required=False)


class OpenAiUser(serializers.Serializer[Any]):
    """OpenAI's user object."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    name = serializers.CharField()
    email = serializers.EmailField()
    role = serializers.ChoiceField(ROLES)
    added_at = serializers.IntegerField()


class OpenAiInvite(serializers.Serializer[Any]):
    """OpenAI's invite object; the address of one that is not pending is forgotten."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    email = serializers.CharField(allow_blank=True)
    role = serializers.ChoiceField([Role.OWNER.value, READER])
    member_role = serializers.ChoiceField(ROLES)
    status = serializers.ChoiceField(["pending", "accepted", "expired"])
    projects = serializers.ListField(child=serializers.DictField())
    invited_at = serializers.IntegerField()
    created_at = serializers.IntegerField()
    expires_at = serializers.IntegerField()
    accepted_at = serializers.IntegerField(allow_null=True)


class OpenAiAdminKey(serializers.Serializer[Any]):
    """OpenAI's admin key object, with the key's permissions."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    name = serializers.CharField()
    redacted_value = serializers.CharField()
    created_at = serializers.IntegerField()
    expires_at = serializers.IntegerField(allow_null=True)
    last_used_at = serializers.IntegerField(allow_null=True)
    owner = serializers.DictField()
    permissions = serializers.ListField(child=serializers.ChoiceField(PERMISSIONS))


class OpenAiAdminKeyMade(OpenAiAdminKey):
    """A new admin key; `value` is shown this once."""

    value = serializers.CharField()


class OpenAiUsersView(OrganizationKeyView):
    """Members."""

    permissions = {"GET": Permission.MEMBERS_READ}

    @extend_schema(responses=page_shown(OpenAiUser))
    def get(self, request: Request) -> Response:
        """Members by id."""
        page = asked_page(request)
        rows = tenants.facade.list_members(
            self.actor, rows_max=page.rows_max, after=page.after, ascending=page.ascending
        )
        return Response(page_body(rows, page, render_openai_user))


class OpenAiUserView(OrganizationKeyView):
    """One member."""

    permissions = {
        "GET": Permission.MEMBERS_READ,
        "POST": Permission.MEMBERS_WRITE,
        "DELETE": Permission.MEMBERS_WRITE,
    }

    @extend_schema(responses=OpenAiUser)
    def get(self, request: Request, user_id: UUID) -> Response:
        """The member."""
        return Response(render_openai_user(tenants.facade.read_member(self.actor, user_id)))

    @extend_schema(request=OpenAiRoleBody, responses=OpenAiUser)
    def post(self, request: Request, user_id: UUID) -> Response:
        """Another role."""
        role = _role(self.body(OpenAiRoleBody)["role"])
        return Response(render_openai_user(tenants.facade.change_role(self.actor, user_id, role)))

    @extend_schema(responses=DeletedShown)
    def delete(self, request: Request, user_id: UUID) -> Response:
        """End the membership."""
        tenants.facade.remove_member(self.actor, user_id)
        return Response(deleted(USER, user_id))


class OpenAiInvitesView(OrganizationKeyView):
    """Invitations."""

    permissions = {"GET": Permission.MEMBERS_READ, "POST": Permission.MEMBERS_WRITE}

    @extend_schema(responses=page_shown(OpenAiInvite))
    def get(self, request: Request) -> Response:
        """Invitations, newest first."""
        page = asked_page(request)
        rows = tenants.facade.list_invitations(
            self.actor, rows_max=page.rows_max, after=page.after, ascending=page.ascending
        )
        return Response(page_body(rows, page, render_openai_invite))

    @extend_schema(request=OpenAiInviteBody, responses=OpenAiInvite)
    def post(self, request: Request) -> Response:
        """Invite by mail."""
        body = self.body(OpenAiInviteBody)
        issued = tenants.facade.invite(self.actor, body["email"], _role(body["role"]))
        return Response(render_openai_invite(issued.invitation))


class OpenAiInviteView(OrganizationKeyView):
    """One invitation."""

    permissions = {"GET": Permission.MEMBERS_READ, "DELETE": Permission.MEMBERS_WRITE}

    @extend_schema(responses=OpenAiInvite)
    def get(self, request: Request, invitation_id: UUID) -> Response:
        """The invitation."""
        found = tenants.facade.read_invitation(self.actor, invitation_id)
        return Response(render_openai_invite(found))

    @extend_schema(responses=DeletedShown)
    def delete(self, request: Request, invitation_id: UUID) -> Response:
        """Withdraw it while it is open."""
        tenants.facade.revoke_invitation(self.actor, invitation_id)
        return Response(deleted(INVITE, invitation_id))


class OpenAiAdminKeysView(OrganizationKeyView):
    """Admin keys."""

    permissions = {"GET": Permission.KEYS_READ, "POST": Permission.KEYS_WRITE}

    @extend_schema(responses=page_shown(OpenAiAdminKey))
    def get(self, request: Request) -> Response:
        """Admin keys, newest first."""
        page = asked_page(request)
        rows = tenants.facade.list_keys(
            self.actor,
            KeyKind.ADMIN,
            with_revoked=False,
            rows_max=page.rows_max,
            after=page.after,
            ascending=page.ascending,
        )
        return Response(page_body(rows, page, render_openai_admin_key))

    @extend_schema(request=OpenAiAdminKeyBody, responses=OpenAiAdminKeyMade)
    def post(self, request: Request) -> Response:
        """A new admin key; its secret is in `value`, this once."""
        body = self.body(OpenAiAdminKeyBody)
        lifetime_s = body.get("expires_in_seconds")
        issued = tenants.facade.create_admin_key(
            self.actor,
            body["name"],
            frozenset(map(Permission, body["permissions"]))
            if "permissions" in body
            else self.actor.permissions,
            expires_at=timezone.now() + timedelta(seconds=lifetime_s) if lifetime_s else None,
        )
        info = tenants.facade.key_made(self.actor, issued)
        return Response(render_openai_admin_key(info) | {"value": issued.secret})


class OpenAiAdminKeyView(OrganizationKeyView):
    """One admin key."""

    permissions = {"GET": Permission.KEYS_READ, "DELETE": Permission.KEYS_WRITE}

    @extend_schema(responses=OpenAiAdminKey)
    def get(self, request: Request, key_id: UUID) -> Response:
        """The key, without its secret."""
        return Response(render_openai_admin_key(self._found(key_id)))

    @extend_schema(responses=DeletedShown)
    def delete(self, request: Request, key_id: UUID) -> Response:
        """Revoke at once and for good."""
        self._found(key_id)
        tenants.facade.revoke_key_as(self.actor, key_id)
        return Response(deleted(ADMIN_KEY, key_id))

    def _found(self, key_id: UUID) -> KeyInfo:
        found = tenants.facade.read_key(self.actor, key_id)
        if found.kind is not KeyKind.ADMIN or found.revoked_at is not None:
            raise TenantObjectNotFound("no such key")
        return found


def _role(name: str) -> Role:
    return Role.VIEWER if name == READER else Role(name)


def render_openai_user(member: Member) -> dict[str, Any]:
    """`OpenAiUser`."""
    return {
        "object": USER,
        "id": str(member.user_id),
        "name": member.display_name,
        "email": member.email,
        "role": member.role.value,
        "added_at": seconds(member.added_at),
    }


def render_openai_invite(invitation: Invitation) -> dict[str, Any]:
    """`OpenAiInvite`."""
    state = state_of(invitation)
    return {
        "object": INVITE,
        "id": str(invitation.invitation_id),
        "email": invitation.email or "",
        "role": Role.OWNER.value if invitation.role is Role.OWNER else READER,
        "member_role": invitation.role.value,
        "status": INVITE_STATUSES.get(state, state),
        "projects": [],
        "invited_at": seconds(invitation.created_at),
        "created_at": seconds(invitation.created_at),
        "expires_at": seconds(invitation.expires_at),
        "accepted_at": seconds(invitation.accepted_at),
    }


def render_openai_admin_key(key: KeyInfo) -> dict[str, Any]:
    """`OpenAiAdminKey`."""
    return {
        "object": ADMIN_KEY,
        "id": str(key.key_id),
        "name": key.settings.name,
        "redacted_value": f"{key.prefix}...{key.last4}",
        "created_at": seconds(key.created_at),
        "expires_at": seconds(key.settings.expires_at),
        "last_used_at": seconds(key.last_used_at),
        "owner": {"type": "user", "id": str(key.created_by) if key.created_by else None},
        "permissions": sorted(key.permissions),
    }
