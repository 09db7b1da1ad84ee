"""Members and invitations."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tenants.contracts.actors import Permission, Role
from tenants.contracts.organizations import Organization, OrganizationStatus


@dataclass(frozen=True, slots=True)
class MemberOf:
    """One organization of a user's."""

    organization: Organization
    role: Role
    status: OrganizationStatus


@dataclass(frozen=True, slots=True)
class Standing:
    """What a member may do at a moment, and whether without a second factor they may not."""

    permissions: frozenset[Permission]
    second_factor_required: bool


@dataclass(frozen=True, slots=True)
class Member:
    """A user in an organization."""

    user_id: UUID
    email: str
    display_name: str
    role: Role
    added_at: datetime


@dataclass(frozen=True, slots=True)
class Invitation:
    """An open, used or withdrawn invitation; its address is forgotten once it is not open."""

    invitation_id: UUID
    email: str | None
    role: Role
    created_at: datetime
    expires_at: datetime
    accepted_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class IssuedInvitation:
    """A new invitation. `token` goes to the invited address; only its hash is stored."""

    invitation: Invitation
    token: str
    link: str
    """Where to accept; it holds the token."""


@dataclass(frozen=True, slots=True)
class InvitationOffer:
    """What somebody who holds an open invitation's token may know before accepting."""

    organization_id: UUID
    display_name: str
    role: Role
    expires_at: datetime
