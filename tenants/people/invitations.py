"""Invitations: a token for one e-mail address, usable once, for some days.

A token has 256 random bits and only its SHA-256 is stored. Nobody invites above their own role, and
what somebody offered is withdrawn when they may not offer it any more. Called by the management API
and the consoles; whoever accepts has signed in.
"""

import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, connections
from django.db.models import Q
from uuid_utils.compat import uuid7

from tenants.audit import record_audit
from tenants.contracts import (
    ROWS_MAX,
    Actor,
    InvalidValue,
    Invitation,
    InvitationForAnother,
    InvitationNotFound,
    InvitationOffer,
    IssuedInvitation,
    LimitReached,
    Permission,
    Role,
    TenantConflict,
)
from tenants.events.mail import send_mail_later
from tenants.keys.bounds import acting_key
from tenants.models import InvitationRow, OrganizationRow
from tenants.people.members import is_member
from tenants.people.permissions import ROLE_PERMISSIONS, require_at_least
from tenants.people.standing import acting
from tenants.people.withdrawing import lock_invitations, open_invitations, withdraw
from tenants.scope import APP_ALIAS, tenant_scope

TOKEN_BYTES = 32
TOKEN_CHARS_MAX = 64
EXPIRES_AFTER_DAYS = 7
EXPIRES_AFTER_DAYS_MAX = 30
INVITATIONS_PER_DAY_MAX = 500
"""Of one organization: each is a mail to somebody who did not ask for it."""
ACCEPT_PATH = "/console/invitation"


def invite(
    actor: Actor, email: str, role: Role, expires_after_days: int = EXPIRES_AFTER_DAYS
) -> IssuedInvitation:
    """Invite an address by mail; an earlier open invitation of it is withdrawn.

    Raises PermissionDenied for a role above the actor's, InvalidValue, TenantConflict for a member
    or too many invitations in a day.
    """
    token = secrets.token_urlsafe(TOKEN_BYTES)
    try:
        with acting(actor, Permission.MEMBERS_WRITE) as actor:
            require_at_least(actor, ROLE_PERMISSIONS[role])
            address = _checked_address(email)
            if not 1 <= expires_after_days <= EXPIRES_AFTER_DAYS_MAX:
                raise InvalidValue("expires_after_days", f"1 to {EXPIRES_AFTER_DAYS_MAX} days")
            if is_member(address):
                raise TenantConflict("this address is a member already")
            withdraw(actor, lock_invitations(open_invitations().filter(email=address)))
            _require_room()
            row = InvitationRow.objects.create(
                id=uuid7(),
                organization_id=actor.organization_id,
                token_hash=_hash(token),
                email=address,
                role=role.value,
                **_made_by(actor, datetime.now(UTC) + timedelta(days=expires_after_days)),
            )
            # Behind the #, so that no server's log holds it.
            link = f"{settings.PUBLIC_URL}{ACCEPT_PATH}#{token}"
            issued = IssuedInvitation(_invitation(row), token, link)
            _send(actor, address, issued)
            record_audit(actor, "invitation.created", "invitation", row.id, {"role": role.value})
            return issued
    except IntegrityError as error:
        raise TenantConflict("this address is being invited by somebody else") from error


def list_invitations(
    actor: Actor,
    *,
    only_open: bool = False,
    rows_max: int = ROWS_MAX,
    after: UUID | None = None,
    ascending: bool = False,
) -> list[Invitation]:
    """Open, used, withdrawn and expired ones, newest first unless `ascending`.

    With `only_open` those that are neither used nor withdrawn.
    """
    actor.require(Permission.MEMBERS_READ)
    with tenant_scope(actor.organization_id):
        rows = open_invitations() if only_open else InvitationRow.objects.all()
        if after is not None:
            rows = rows.filter(Q(id__gt=after) if ascending else Q(id__lt=after))
        ordered = rows.order_by("id" if ascending else "-id")
        return [_invitation(row) for row in ordered[:rows_max]]


def read_invitation(actor: Actor, invitation_id: UUID) -> Invitation:
    """One invitation; raises InvitationNotFound."""
    actor.require(Permission.MEMBERS_READ)
    with tenant_scope(actor.organization_id):
        row = InvitationRow.objects.filter(id=invitation_id).first()
    if row is None:
        raise InvitationNotFound("no such invitation")
    return _invitation(row)


def revoke_invitation(actor: Actor, invitation_id: UUID) -> None:
    """Withdraw an open invitation; raises InvitationNotFound for any other."""
    actor.require(Permission.MEMBERS_WRITE)
    with tenant_scope(actor.organization_id):
        found = lock_invitations(open_invitations().filter(id=invitation_id))
        if not found:
            raise InvitationNotFound("no such open invitation")
        withdraw(actor, found)


def invitation_offer(token: str) -> InvitationOffer:
    """What an open invitation offers; raises InvitationNotFound for any other token."""
    hashed = _checked_hash(token)
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT organization_id, display_name, role, expires_at"
            " FROM tenants_invitation_offer(%s)",
            [hashed],
        )
        row = cursor.fetchone()
    if row is None:
        raise InvitationNotFound("this invitation is not open")
    return InvitationOffer(row[0], row[1], Role(row[2]), row[3])


def accept_invitation(
    user_id: UUID, token: str, ip: str = "", request_id: UUID | None = None
) -> UUID:
    """Join as a user who has signed in; returns the organization's id.

    Raises InvitationNotFound for a token that is unknown, used, withdrawn or expired, and
    InvitationForAnother, which leaves it open, where the user has another address.
    """
    hashed = _checked_hash(token)
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT accepted, organization_id FROM tenants_accept_invitation(%s, %s, %s, %s)",
            [hashed, user_id, ip, request_id],
        )
        row = cursor.fetchone()
    if row is None:
        raise InvitationNotFound("this invitation is not open")
    if not row[0]:
        raise InvitationForAnother("this invitation is for another e-mail address")
    organization_id: UUID = row[1]
    return organization_id


def _send(actor: Actor, address: str, issued: IssuedInvitation) -> None:
    organization = OrganizationRow.objects.get(id=actor.organization_id)
    context = {
        "organization": organization.display_name,
        "role": issued.invitation.role.value,
        "expires_at": f"{issued.invitation.expires_at:%d %B %Y}",
        "link": issued.link,
    }
    send_mail_later(actor.organization_id, address, "invitation", context)


def _require_room() -> None:
    day_ago = datetime.now(UTC) - timedelta(days=1)
    if InvitationRow.objects.filter(created_at__gt=day_ago).count() >= INVITATIONS_PER_DAY_MAX:
        raise LimitReached(
            "invitations_per_day", f"at most {INVITATIONS_PER_DAY_MAX} people are invited in a day"
        )


def _made_by(actor: Actor, expires_at: datetime) -> dict[str, Any]:  # columns of two types
    """Who invites, and until when: what a key offers ends with the key."""
    key = acting_key(actor, APP_ALIAS)
    if key is None:
        return {"invited_by": actor.actor_id, "expires_at": expires_at}
    return {"invited_by": key.line, "expires_at": min(expires_at, key.ends_at or expires_at)}


def _checked_address(email: str) -> str:
    address = email.strip().lower()
    try:
        validate_email(address)
    except ValidationError:
        raise InvalidValue("email", "not an e-mail address") from None
    return address


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("ascii")).digest()


def _checked_hash(token: str) -> bytes:
    if not token.isascii() or len(token) > TOKEN_CHARS_MAX:
        raise InvitationNotFound("this invitation is not open")
    return _hash(token)


def _invitation(row: InvitationRow) -> Invitation:
    return Invitation(
        invitation_id=row.id,
        email=row.email,
        role=Role(row.role),
        created_at=row.created_at,
        expires_at=row.expires_at,
        accepted_at=row.accepted_at,
        revoked_at=row.revoked_at,
    )
