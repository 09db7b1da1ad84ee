"""Withdrawing invitations: by somebody's will, or since whoever made them may no longer.

Locks and withdrawals are two steps, for who takes other locks too: the audit log's is the last of
all. Called by invitations, by members and by the life of a key.
"""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Now

from tenants.audit import record_audit
from tenants.contracts import Actor
from tenants.models import InvitationRow
from tenants.scope import APP_ALIAS


def open_invitations(using: str = APP_ALIAS) -> QuerySet[InvitationRow]:
    """Neither used nor withdrawn; some may have expired."""
    return InvitationRow.objects.using(using).filter(accepted_at=None, revoked_at=None)


def lock_invitations(rows: QuerySet[InvitationRow]) -> list[InvitationRow]:
    """The rows, locked for `withdraw`."""
    return list(rows.order_by("id").select_for_update(no_key=True))


def withdraw(actor: Actor, locked: Sequence[InvitationRow], using: str = APP_ALIAS) -> None:
    """Withdraw for good and forget the address, inside the open scope."""
    for row in locked:
        invitation_id: UUID = row.id
        InvitationRow.objects.using(using).filter(id=invitation_id).update(
            revoked_at=Now(), email=None
        )
        record_audit(
            actor, "invitation.revoked", "invitation", invitation_id, {"role": row.role}, using
        )
