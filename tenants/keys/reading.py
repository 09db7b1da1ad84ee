"""Keys as they are read: one, a list, and what binds a key's work.

No secret and no hash leaves here. Called by the management API, the consoles and bulk work.
"""

from collections.abc import Collection
from uuid import UUID

from tenants.contracts import (
    ROWS_MAX,
    Actor,
    IssuedKey,
    KeyIdentity,
    KeyInfo,
    KeyKind,
    KeyRules,
    Permission,
    TenantObjectNotFound,
)
from tenants.keys.secrets import identity_behind
from tenants.keys.settings import key_info
from tenants.models import ApiKey, Project
from tenants.scope import tenant_scope


def read_key(actor: Actor, key_id: UUID) -> KeyInfo:
    """One key; raises TenantObjectNotFound."""
    actor.require(Permission.KEYS_READ)
    with tenant_scope(actor.organization_id):
        row = ApiKey.objects.filter(id=key_id).first()
    if row is None:
        raise TenantObjectNotFound("no such key")
    return key_info(row)


def key_made(actor: Actor, issued: IssuedKey) -> KeyInfo:
    """What is shown of a key to whom it was just made for, who may have no right to read keys."""
    with tenant_scope(actor.organization_id):
        return key_info(ApiKey.objects.get(id=issued.key_id))


def list_keys(
    actor: Actor,
    kind: KeyKind,
    project_id: UUID | None = None,
    *,
    with_revoked: bool = True,
    rows_max: int = ROWS_MAX,
    after: UUID | None = None,
    ascending: bool = False,
) -> list[KeyInfo]:
    """Keys of a kind, of one project if asked, newest first unless `ascending`.

    Raises TenantObjectNotFound for a project that is not here.
    """
    actor.require(Permission.KEYS_READ)
    with tenant_scope(actor.organization_id):
        rows = ApiKey.objects.filter(kind=kind.value)
        if not with_revoked:
            rows = rows.filter(revoked_at=None)
        if project_id is not None:
            require_project_here(project_id)
            rows = rows.filter(project_id=project_id)
        if after is not None:
            rows = rows.filter(**{"id__gt" if ascending else "id__lt": after})
        return [key_info(row) for row in rows.order_by("id" if ascending else "-id")[:rows_max]]


def key_names(actor: Actor, key_ids: Collection[UUID]) -> dict[UUID, str]:
    """What these keys are called, revoked ones too; those that are not here are left out."""
    actor.require(Permission.KEYS_READ)
    with tenant_scope(actor.organization_id):
        return dict(ApiKey.objects.filter(id__in=key_ids).values_list("id", "name"))


def key_rules(organization_id: UUID, key_id: UUID) -> KeyRules:
    """What binds the requests of a key whose secret is not at hand: bulk work.

    An unknown key may use nothing.
    """
    with tenant_scope(organization_id):
        row = (
            ApiKey.objects.filter(id=key_id)
            .values_list("allowed_models", "organization__cache_per_project")
            .first()
        )
    if row is None:
        return KeyRules(frozenset())
    models, cache_per_project = row
    return KeyRules(None if models is None else frozenset(models), cache_per_project)


def identity_of_key(actor: Actor, key_id: UUID) -> KeyIdentity:
    """Who a key of the organization speaks for, whose secret nobody has at hand.

    Raises TenantObjectNotFound for no such key, and what `authenticate` raises for one that may
    not be used now.
    """
    with tenant_scope(actor.organization_id):
        row = ApiKey.objects.filter(id=key_id).values_list("secret_hash", "hash_scheme").first()
    if row is None:
        raise TenantObjectNotFound("no such key")
    hashed, scheme = row
    return identity_behind(bytes(hashed), scheme)


def require_project_here(project_id: UUID) -> None:
    """Inside a scope: raises TenantObjectNotFound where the organization has no such project."""
    if not Project.objects.filter(id=project_id).exists():
        raise TenantObjectNotFound("no such project")
