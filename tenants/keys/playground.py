"""The key by which the people of a project use its playground: theirs by session, and by no secret.

It is made when it is first needed, is listed, limited and revoked like any other, and what it does
is charged and shown as its own. No text authenticates as it: its scheme is not one of a secret's.
Called by the console.
"""

import secrets
from uuid import UUID

from uuid_utils.compat import uuid7

from tenants.audit import record_audit
from tenants.contracts import (
    Actor,
    KeyIdentity,
    KeyKind,
    KeyScope,
    KeySettings,
    Permission,
)
from tenants.events.outbox import emit
from tenants.keys.lifecycle import require_open_project, require_room
from tenants.keys.secrets import identity_behind
from tenants.keys.settings import columns_of
from tenants.models import ApiKey
from tenants.people.standing import acting
from tenants.scope import tenant_scope

HASH_SCHEME = "playground"
NAME = "Playground"
SHOWN = "no secret"
HASH_BYTES = 32


def playground_identity(actor: Actor, project_id: UUID) -> KeyIdentity:
    """Who a project's playground speaks for; where its key was revoked, another one is made.

    Raises PermissionDenied, TenantObjectNotFound for a project that is not here, TenantConflict for
    an archived one, KeyRejected where the key has expired, OrganizationSuspended.
    """
    actor.require(Permission.PLAYGROUND)
    return identity_behind(_found(actor, project_id) or _made(actor, project_id), HASH_SCHEME)


def _found(actor: Actor, project_id: UUID) -> bytes | None:
    with tenant_scope(actor.organization_id):
        stored = (
            ApiKey.objects.filter(
                project_id=project_id, hash_scheme=HASH_SCHEME, revoked_at=None, replaced_by=None
            )
            .values_list("secret_hash", flat=True)
            .first()
        )
    return None if stored is None else bytes(stored)


def _made(actor: Actor, project_id: UUID) -> bytes:
    with acting(actor, Permission.PLAYGROUND) as standing:
        # Of two who come at once the second waits for the organization's row, and finds it.
        if (found := _found(standing, project_id)) is not None:
            return found
        require_open_project(project_id)
        require_room(standing)
        key_id, unknown = uuid7(), secrets.token_bytes(HASH_BYTES)
        ApiKey.objects.create(
            id=key_id,
            organization_id=standing.organization_id,
            kind=KeyKind.PROJECT.value,
            project_id=project_id,
            created_by=standing.actor_id,
            prefix=SHOWN,
            last4="",
            secret_hash=unknown,
            hash_scheme=HASH_SCHEME,
            **columns_of(KeySettings(NAME, frozenset({KeyScope.CHAT}))),
        )
        about = {"kind": KeyKind.PROJECT.value, "project": str(project_id)}
        emit(standing.organization_id, "key.created", {"key_id": str(key_id), **about})
        record_audit(standing, "key.created", "key", key_id, about)
    return unknown
