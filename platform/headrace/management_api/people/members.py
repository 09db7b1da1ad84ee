"""Members and invitations, under `/api/v1/organizations/{id}/` and `/api/v1/invitations/accept`.

A token is in the answer that made it and in the mail to the invited address, and nowhere else.
"""

from typing import Any, ClassVar
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import tenants.facade
from headrace.management_api.base import TenantView
from headrace.management_api.bodies import Body
from headrace.management_api.paging import asked_page, page_body, page_shown
from headrace.management_api.people.me import PersonView
from tenants.contracts import Invitation, Member, Permission, Role

ROLES = [role.value for role in Role]
TOKEN_CHARS_MAX = 64
STATES = ("open", "accepted", "revoked", "expired")


class RoleBody(Body):
    """Another role."""

    role = serializers.ChoiceField(ROLES)


class MemberShown(serializers.Serializer[Any]):
    """A member; `id` is the user's."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    email = serializers.EmailField()
    display_name = serializers.CharField()
    role = serializers.ChoiceField(ROLES)
    added_at = serializers.DateTimeField()


class InvitationBody(Body):
    """Whom to invite, as what."""

    email = serializers.EmailField(max_length=254)
    role = serializers.ChoiceField(ROLES)
    expires_after_days = serializers.IntegerField(min_value=1, max_value=30, default=7)


class InvitationShown(serializers.Serializer[Any]):
    """An invitation; its address is forgotten once it is not open."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    email = serializers.EmailField(allow_null=True)
    role = serializers.ChoiceField(ROLES)
    status = serializers.ChoiceField(STATES)
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    accepted_at = serializers.DateTimeField(allow_null=True)


class InvitationMade(InvitationShown):
    """A new invitation, with its token this once."""

    token = serializers.CharField()


class AcceptBody(Body):
    """The token of the mail."""

    token = serializers.CharField(max_length=TOKEN_CHARS_MAX)


class AcceptedShown(serializers.Serializer[Any]):
    """Where the person belongs from now on."""

    object = serializers.CharField()
    organization_id = serializers.UUIDField()


class MembersView(TenantView):
    """Who belongs here."""

    permissions = {"GET": Permission.MEMBERS_READ}

    @extend_schema(responses=page_shown(MemberShown))
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Members by user id."""
        page = asked_page(request)
        rows = tenants.facade.list_members(
            self.actor, rows_max=page.rows_max, after=page.after, ascending=page.ascending
        )
        return Response(page_body(rows, page, render_member))


class MemberView(TenantView):
    """One member."""

    permissions = {
        "GET": Permission.MEMBERS_READ,
        "PATCH": Permission.MEMBERS_WRITE,
        "DELETE": Permission.MEMBERS_WRITE,
    }
    sensitive: ClassVar[frozenset[str]] = frozenset({"PATCH"})

    @extend_schema(responses=MemberShown)
    def get(self, request: Request, organization_id: UUID, user_id: UUID) -> Response:
        """The member."""
        return Response(render_member(tenants.facade.read_member(self.actor, user_id)))

    @extend_schema(request=RoleBody, responses=MemberShown)
    def patch(self, request: Request, organization_id: UUID, user_id: UUID) -> Response:
        """Another role, from now on; neither the old nor the new one above the caller's."""
        role = Role(self.body(RoleBody)["role"])
        return Response(render_member(tenants.facade.change_role(self.actor, user_id, role)))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, organization_id: UUID, user_id: UUID) -> Response:
        """End the membership, and the admin keys made by it."""
        tenants.facade.remove_member(self.actor, user_id)
        return Response(status=204)


class InvitationsView(TenantView):
    """Who is invited."""

    permissions = {"GET": Permission.MEMBERS_READ, "POST": Permission.MEMBERS_WRITE}
    sensitive: ClassVar[frozenset[str]] = frozenset({"POST"})

    @extend_schema(responses=page_shown(InvitationShown))
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Invitations, newest first."""
        page = asked_page(request)
        rows = tenants.facade.list_invitations(
            self.actor, rows_max=page.rows_max, after=page.after, ascending=page.ascending
        )
        return Response(page_body(rows, page, render_invitation))

    @extend_schema(request=InvitationBody, responses={201: InvitationMade})
    def post(self, request: Request, organization_id: UUID) -> Response:
        """Invite by mail; an earlier invitation of the address is withdrawn."""
        body = self.body(InvitationBody)
        issued = tenants.facade.invite(
            self.actor, body["email"], Role(body["role"]), body["expires_after_days"]
        )
        shown = render_invitation(issued.invitation) | {"token": issued.token}
        return Response(shown, status=201)


class InvitationView(TenantView):
    """One invitation."""

    permissions = {"GET": Permission.MEMBERS_READ, "DELETE": Permission.MEMBERS_WRITE}

    @extend_schema(responses=InvitationShown)
    def get(self, request: Request, organization_id: UUID, invitation_id: UUID) -> Response:
        """The invitation."""
        found = tenants.facade.read_invitation(self.actor, invitation_id)
        return Response(render_invitation(found))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, organization_id: UUID, invitation_id: UUID) -> Response:
        """Withdraw it while it is open."""
        tenants.facade.revoke_invitation(self.actor, invitation_id)
        return Response(status=204)


class AcceptView(PersonView):
    """The other side of an invitation."""

    @extend_schema(request=AcceptBody, responses=AcceptedShown)
    def post(self, request: Request) -> Response:
        """Join, once, as the person whose address was invited."""
        token = self.body(AcceptBody)["token"]
        organization_id = tenants.facade.accept_invitation(
            self.person.user_id, token, self.ip, self.request_id
        )
        return Response(
            {"object": "organization.membership", "organization_id": str(organization_id)}
        )


class LeaveView(PersonView):
    """One organization of the person's."""

    @extend_schema(responses={204: None})
    def delete(self, request: Request, organization: UUID) -> Response:
        """Leave it, whatever the role; the last owner cannot."""
        me = self.person.user_id
        actor = tenants.facade.actor_for_user(
            me, organization, self.ip, self.request_id, has_second_factor=None
        )
        tenants.facade.remove_member(actor, me)
        return Response(status=204)


def render_member(member: Member) -> dict[str, Any]:
    """`MemberShown`."""
    return {
        "object": "organization.member",
        "id": str(member.user_id),
        "email": member.email,
        "display_name": member.display_name,
        "role": member.role.value,
        "added_at": member.added_at.isoformat(),
    }


def state_of(invitation: Invitation) -> str:
    """One of STATES."""
    if invitation.accepted_at is not None:
        return "accepted"
    if invitation.revoked_at is not None:
        return "revoked"
    return "expired" if invitation.expires_at <= timezone.now() else "open"


def render_invitation(invitation: Invitation) -> dict[str, Any]:
    """`InvitationShown`."""
    accepted_at = invitation.accepted_at
    return {
        "object": "organization.invitation",
        "id": str(invitation.invitation_id),
        "email": invitation.email,
        "role": invitation.role.value,
        "status": state_of(invitation),
        "created_at": invitation.created_at.isoformat(),
        "expires_at": invitation.expires_at.isoformat(),
        "accepted_at": accepted_at.isoformat() if accepted_at else None,
    }
