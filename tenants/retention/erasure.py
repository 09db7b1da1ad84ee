"""Deleting an organization: asked for, confirmed, then done for good by a task.

From the confirmation on its keys are dead. What goes: memberships, invitations, webhooks, mail,
kept prompts and answers, files and jobs, names, and the account of whoever confirmed it, if that
belongs nowhere else; guests keep theirs. What stays: the ledger, usage and the audit log, under ids
that name nobody any more. Other packages register what they forget.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from django.contrib.auth.hashers import make_password
from django.db import connections
from django.db.models.functions import Now

from tenants.audit import record_audit
from tenants.contracts import Actor, OrganizationStatus, Permission
from tenants.contracts.retention import ErasureNotConfirmed, ErasureRequest
from tenants.models import ApiKey, Erasure, Mail, Membership, OrganizationRow, User
from tenants.people.permissions import operator_of
from tenants.scope import APP_ALIAS, tenant_scope

HOUSEKEEPER_ALIAS = "housekeeper"
CONFIRM_WITHIN_S = 3600
TOKEN_BYTES = 32

Eraser = Callable[[UUID], None]
"""Forgets what a package has of an organization; as the housekeeper, outside any transaction. It
may be called again after a failure."""
PersonEraser = Callable[[UUID], None]
"""Forgets what a package has of a person; as the housekeeper, in the transaction that ends the
account."""

_erasers: dict[str, Eraser] = {}
_person_erasers: dict[str, PersonEraser] = {}
_FORGOTTEN = (
    "tenants_webhook_endpoint",
    "tenants_outbox_event",
    "tenants_mail",
    "tenants_exchange",
    "tenants_idempotent_request",
    "tenants_export",
    "tenants_membership",
)
"""Tables whose rows of the organization go, in this order; parts and deliveries go with theirs."""


def register_eraser(name: str, eraser: Eraser) -> None:
    """Have a package's own data forgotten too; called when Django starts."""
    _erasers[name] = eraser


def register_person_eraser(name: str, eraser: PersonEraser) -> None:
    """Have a package's own data of a person forgotten too; called when Django starts."""
    _person_erasers[name] = eraser


def request_erasure(actor: Actor) -> ErasureRequest:
    """The first step: a token that confirms it within the hour. Nothing changes yet.

    Raises PermissionDenied.
    """
    actor.require(Permission.ORGANIZATION_DELETE)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    with tenant_scope(actor.organization_id), connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "INSERT INTO tenants_erasure"
            " (organization_id, asked_by, token_hash, token_expires_at)"
            " VALUES (%(organization)s, %(actor)s, %(hash)s,"
            "         now() + make_interval(secs => %(within)s))"
            " ON CONFLICT (organization_id) DO UPDATE SET asked_by = excluded.asked_by,"
            " asked_at = now(), token_hash = excluded.token_hash,"
            " token_expires_at = excluded.token_expires_at"
            " RETURNING token_expires_at",
            {
                "organization": actor.organization_id,
                "actor": actor.actor_id,
                "hash": _hash(token),
                "within": CONFIRM_WITHIN_S,
            },
        )
        expires_at: datetime = cursor.fetchone()[0]
        record_audit(actor, "erasure.requested", "organization", actor.organization_id)
    return ErasureRequest(token, expires_at)


def confirm_erasure(actor: Actor, token: str, slug: str) -> None:
    """The second step, for good: every key is revoked at once, and the task does the rest.

    It is for whoever took the first one, whose account goes too if it belongs nowhere else. The
    organization must be named by its slug. Raises PermissionDenied or ErasureNotConfirmed.
    """
    actor.require(Permission.ORGANIZATION_DELETE)
    with tenant_scope(actor.organization_id):
        row = Erasure.objects.select_for_update(no_key=True).filter(token_expires_at__gt=Now())
        found = row.first()
        if (
            found is None
            or found.asked_by != actor.actor_id
            or not hmac.compare_digest(bytes(found.token_hash), _hash(token))
        ):
            raise ErasureNotConfirmed("token", "The token is wrong or has expired.")
        organization = OrganizationRow.objects.get(id=actor.organization_id)
        if not hmac.compare_digest(organization.slug.encode(), slug.encode()):
            raise ErasureNotConfirmed("slug", "Name the organization by its slug.")
        if found.confirmed_at is not None:
            return
        Erasure.objects.filter(organization_id=actor.organization_id).update(confirmed_at=Now())
        ApiKey.objects.filter(revoked_at=None).update(revoked_at=Now())
        record_audit(actor, "erasure.confirmed", "organization", actor.organization_id)


def erase_due() -> bool:
    """Erase one confirmed organization, as the task does; whether there was one.

    A failure in the middle leaves it to the next call, which goes through all of it again.
    """
    waiting = Erasure.objects.using(HOUSEKEEPER_ALIAS).filter(erased_at=None)
    row = waiting.exclude(confirmed_at=None).order_by("confirmed_at").first()
    if row is None:
        return False
    organization_id: UUID = row.organization_id
    _close(organization_id)
    for eraser in _erasers.values():
        eraser(organization_id)
    _forget(organization_id, row.asked_by)
    return True


def _close(organization_id: UUID) -> None:
    with tenant_scope(organization_id, HOUSEKEEPER_ALIAS):
        OrganizationRow.objects.using(HOUSEKEEPER_ALIAS).filter(id=organization_id).update(
            status=OrganizationStatus.CLOSED.value
        )
        # One that was made after the confirmation.
        ApiKey.objects.using(HOUSEKEEPER_ALIAS).filter(
            organization_id=organization_id, revoked_at=None
        ).update(revoked_at=Now())


def _forget(organization_id: UUID, asked_by: UUID | None) -> None:
    """Everything of ours, in one transaction, and the note that it is done.

    Members lose their membership; whoever asked for this, the account.
    """
    with (
        tenant_scope(organization_id, HOUSEKEEPER_ALIAS),
        connections[HOUSEKEEPER_ALIAS].cursor() as cursor,
    ):
        # Locked first: nobody joins another organization while this one goes.
        people = User.objects.using(HOUSEKEEPER_ALIAS).select_for_update()
        person = people.filter(id=asked_by, is_staff=False).first() if asked_by else None
        for table in _FORGOTTEN:
            cursor.execute(
                f"DELETE FROM {table} WHERE organization_id = %s",  # noqa: S608 - our own names
                [organization_id],
            )
        for statement in _PSEUDONYMS:
            cursor.execute(statement, {"organization": organization_id})
        if person is not None:
            _forget_person(person)
        Erasure.objects.using(HOUSEKEEPER_ALIAS).filter(organization_id=organization_id).update(
            erased_at=Now()
        )
        record_audit(
            operator_of(organization_id),
            "organization.erased",
            "organization",
            organization_id,
            using=HOUSEKEEPER_ALIAS,
        )


def _forget_person(person: User) -> None:
    """End an account that belongs nowhere any more; it is locked."""
    if Membership.objects.using(HOUSEKEEPER_ALIAS).filter(user=person).exists():
        return
    for eraser in _person_erasers.values():
        eraser(person.id)
    # Of no organization, such as links to sign in.
    Mail.objects.using(HOUSEKEEPER_ALIAS).filter(to_address__iexact=person.email).delete()
    person.email = f"erased-{person.id}@invalid"
    person.display_name = ""
    person.password = make_password(None)
    person.is_active = False
    person.save(using=HOUSEKEEPER_ALIAS)


_PSEUDONYMS = (
    """UPDATE tenants_invitation SET email = NULL, revoked_at = coalesce(revoked_at, now())
        WHERE organization_id = %(organization)s AND accepted_at IS NULL""",
    "UPDATE tenants_api_key SET name = '' WHERE organization_id = %(organization)s",
    "UPDATE tenants_service_account SET name = '' WHERE organization_id = %(organization)s",
    """UPDATE tenants_project SET name = '', archived_at = coalesce(archived_at, now())
        WHERE organization_id = %(organization)s""",
    """UPDATE tenants_organization SET slug = 'erased-' || right(id::text, 12), display_name = ''
        WHERE id = %(organization)s""",
)
"""Names go; the rows stay, for the ledger and the audit log point at them."""


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
