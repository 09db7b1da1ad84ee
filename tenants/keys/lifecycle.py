"""The life of an API key: made, changed, rotated with grace, imported, revoked.

A secret is in the answer of the call that made it and nowhere else. A rotated key works until the
very instant its grace ends; nothing moves that instant, only revoking ends it sooner. Called by
the management API, the consoles, the importer and the operator's commands.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from tenants.audit import record_audit
from tenants.contracts import (
    Actor,
    ActorKind,
    AlreadyRotated,
    InvalidValue,
    IssuedKey,
    KeyInfo,
    KeyKind,
    KeySettings,
    LimitReached,
    Permission,
    TenantConflict,
    TenantObjectNotFound,
)
from tenants.events.outbox import emit
from tenants.keys.bounds import acting_key, inherited, require_another, require_within
from tenants.keys.secrets import (
    HASH_SCHEME,
    IMPORTED_HASH_SCHEME,
    SHOWN_PREFIX_LENGTH,
    hash_secret,
    new_secret,
)
from tenants.keys.settings import allowed_from, columns_of, key_info
from tenants.models import ApiKey, Project, ServiceAccountRow
from tenants.people.permissions import operator_of, require_at_least
from tenants.people.standing import acting
from tenants.people.withdrawing import lock_invitations, open_invitations, withdraw
from tenants.scope import APP_ALIAS, tenant_scope

GRACE_S_MAX = 30 * 24 * 3600
_OF_ANY_KIND = frozenset({"name", "cidrs", "expires_at"})
KEYS_MAX = 10_000
"""Keys of one organization that are not revoked."""
EXPIRES_BEFORE = datetime(9000, 1, 1, tzinfo=UTC)
"""Later ones are beyond what can be told in every time zone: no list would show such a key."""


def create_key(
    actor: Actor,
    project_id: UUID,
    settings: KeySettings,
    service_account_id: UUID | None = None,
    using: str = APP_ALIAS,
) -> IssuedKey:
    """A key of a project, or of a service account in it; its secret is in the answer only.

    Raises TenantObjectNotFound for a project or account that is not here, InvalidValue,
    TenantConflict for an archived project, a disabled account or too many keys.
    """
    with acting(actor, Permission.KEYS_WRITE, using=using) as actor:
        _require_future(settings.expires_at)
        _require_room(actor, using)
        _require_project(project_id, using)
        if service_account_id is not None:
            _require_service_account(project_id, service_account_id, using)
        return _insert(
            actor,
            using,
            kind=KeyKind.PROJECT.value,
            project_id=project_id,
            service_account_id=service_account_id,
            **columns_of(settings),
        )


def create_admin_key(
    actor: Actor,
    name: str,
    permissions: frozenset[Permission],
    cidrs: tuple[str, ...] = (),
    expires_at: datetime | None = None,
    using: str = APP_ALIAS,
) -> IssuedKey:
    """A key that administers the organization and cannot infer.

    A key gives another no later expiry and no wider networks than its own, and unless told
    otherwise the same. Raises PermissionDenied for a permission that the actor lacks,
    InvalidValue, TenantConflict.
    """
    with acting(actor, Permission.KEYS_WRITE, Permission.MEMBERS_WRITE, using=using) as actor:
        require_at_least(actor, permissions)
        if not permissions:
            raise InvalidValue("permissions", "an admin key needs at least one")
        _require_future(expires_at)
        maker = acting_key(actor, using)
        settings = inherited(KeySettings(name, cidrs=cidrs, expires_at=expires_at), maker)
        columns = columns_of(settings)
        require_within(maker, settings.expires_at, columns["cidrs"])
        _require_room(actor, using)
        return _insert(
            actor,
            using,
            kind=KeyKind.ADMIN.value,
            permissions=sorted(permission.value for permission in permissions),
            **columns,
        )


def import_key(
    organization_id: UUID,
    project_id: UUID,
    settings: KeySettings,
    secret_hash: bytes,
    shown: str,
    using: str = "housekeeper",
) -> UUID | None:
    """A LiteLLM key by its SHA-256: its holder keeps the secret, which we never see.

    `shown` is what LiteLLM shows of it, as `sk-...1234`. Returns the new key's id, or None where
    the hash is here already, whoever has it.
    """
    if len(secret_hash) != 32:
        raise InvalidValue("secret_hash", "a SHA-256 has 32 bytes")
    actor = operator_of(organization_id)
    with tenant_scope(organization_id, using):
        if (
            ApiKey.objects.using(using)
            .filter(hash_scheme=IMPORTED_HASH_SCHEME, secret_hash=secret_hash)
            .exists()
        ):
            return None
        key_id: UUID = uuid7()
        ApiKey.objects.using(using).create(
            id=key_id,
            organization_id=organization_id,
            kind=KeyKind.PROJECT.value,
            project_id=project_id,
            prefix="sk-",
            last4=shown[-4:],
            secret_hash=secret_hash,
            hash_scheme=IMPORTED_HASH_SCHEME,
            **columns_of(settings),
        )
        record_audit(actor, "key.imported", "key", key_id, {"project": str(project_id)}, using)
    return key_id


def rotate_key(actor: Actor, key_id: UUID, grace_s: int = 0, using: str = APP_ALIAS) -> IssuedKey:
    """A successor with the same settings; the old key stops working `grace_s` from now.

    One key has one successor: a second rotation of it raises AlreadyRotated, and rotating the
    successor leaves the end of the first grace where it was promised. Raises TenantObjectNotFound,
    InvalidValue, TenantConflict for a key that does not work any more or that would rotate itself.
    """
    with acting(actor, Permission.KEYS_WRITE, using=using) as actor:
        if not 0 <= grace_s <= GRACE_S_MAX:
            raise InvalidValue("grace_s", f"0 to {GRACE_S_MAX} seconds")
        row = _locked(actor, key_id, using)
        if row.replaced_by is not None:
            raise AlreadyRotated(f"the key was rotated already: its successor is {row.replaced_by}")
        _require_working(row)
        maker = acting_key(actor, using)
        require_another(maker, row)
        if row.kind == KeyKind.ADMIN.value:
            require_within(maker, row.expires_at, row.cidrs)
        issued = _insert(
            actor,
            using,
            kind=row.kind,
            project_id=row.project_id,
            service_account_id=row.service_account_id,
            line_id=row.line,
            name=row.name,
            scopes=row.scopes,
            permissions=row.permissions,
            allowed_models=row.allowed_models,
            cidrs=row.cidrs,
            limits=row.limits,
            end_user_limits=row.end_user_limits,
            expires_at=row.expires_at,
        )
        ApiKey.objects.using(using).filter(id=key_id).update(
            revoke_at=Now() + timedelta(seconds=grace_s), replaced_by=issued.key_id
        )
        record_audit(
            actor,
            "key.rotated",
            "key",
            key_id,
            {"replaced_by": str(issued.key_id), "grace_s": grace_s},
            using,
        )
    return issued


def update_key(actor: Actor, key_id: UUID, change: Callable[[KeySettings], KeySettings]) -> KeyInfo:
    """Set a key to what `change` makes of it; an admin key has a name, networks and an expiry.

    Raises TenantObjectNotFound, InvalidValue, TenantConflict for a revoked key or one that would
    change itself.
    """
    with acting(actor, Permission.KEYS_WRITE) as actor:
        row = _locked(actor, key_id, APP_ALIAS)
        if row.revoked_at is not None:
            raise TenantConflict("the key is revoked")
        maker = acting_key(actor, APP_ALIAS)
        require_another(maker, row)
        settings = change(key_info(row).settings)
        columns = columns_of(settings)
        changed = sorted(name for name in columns if columns[name] != getattr(row, name))
        if "expires_at" in changed:
            _require_future(settings.expires_at)
        foreign = [name for name in changed if name not in _OF_ANY_KIND]
        if foreign and row.kind == KeyKind.ADMIN.value:
            raise InvalidValue(foreign[0], "not a setting of an admin key")
        if row.kind == KeyKind.ADMIN.value:
            require_within(maker, settings.expires_at, columns["cidrs"])
        if changed:
            ApiKey.objects.filter(id=key_id).update(**{name: columns[name] for name in changed})
            record_audit(actor, "key.updated", "key", key_id, {"changed": changed})
        return key_info(ApiKey.objects.get(id=key_id))


def revoke_key_as(actor: Actor, key_id: UUID, using: str = APP_ALIAS) -> KeyInfo:
    """Revoke at once and for good; again changes nothing. Raises TenantObjectNotFound."""
    with acting(actor, Permission.KEYS_WRITE, using=using) as actor:
        row = _locked(actor, key_id, using)
        rows = ApiKey.objects.using(using).filter(id=row.id)
        revoke_rows(actor, rows, using)
        return key_info(rows.get())


def revoke_rows(actor: Actor, rows: "QuerySet[ApiKey]", using: str) -> None:
    """Revoke those of `rows` that are not, with what their lines offer, inside the open scope."""
    living = list(rows.filter(revoked_at=None).order_by("id").select_for_update(no_key=True))
    # All locks before the audit log's: who rotates one, or joins, takes them in that order.
    offered = open_invitations(using).filter(invited_by__in=[row.line for row in living])
    invitations = lock_invitations(offered)
    key_ids = [row.id for row in living]
    ApiKey.objects.using(using).filter(id__in=key_ids).update(revoked_at=Now())
    for key_id in key_ids:
        record_audit(actor, "key.revoked", "key", key_id, using=using)
    withdraw(actor, invitations, using)


def issue_key(
    organization_id: UUID,
    project_id: UUID,
    name: str,
    expires_at: datetime | None = None,
    using: str = APP_ALIAS,
) -> IssuedKey:
    """Make a key as the operator, with every scope; its secret is in the answer and nowhere else.

    Raises IntegrityError when the project is not the organization's.
    """
    with tenant_scope(organization_id, using):
        return _insert(
            operator_of(organization_id),
            using,
            kind=KeyKind.PROJECT.value,
            project_id=project_id,
            name=name,
            expires_at=expires_at,
        )


def revoke_key(organization_id: UUID, key_id: UUID, using: str = APP_ALIAS) -> None:
    """Revoke as the operator; revoking again, or an unknown key, changes nothing."""
    with acting(operator_of(organization_id), using=using) as operator:
        rows = ApiKey.objects.using(using).filter(organization_id=organization_id, id=key_id)
        revoke_rows(operator, rows, using)


def _insert(actor: Actor, using: str, **columns: object) -> IssuedKey:
    secret = new_secret()
    key_id: UUID = uuid7()
    ApiKey.objects.using(using).create(
        id=key_id,
        organization_id=actor.organization_id,
        created_by=_maker(actor, using),
        prefix=secret[:SHOWN_PREFIX_LENGTH],
        last4=secret[-4:],
        secret_hash=hash_secret(secret),
        hash_scheme=HASH_SCHEME,
        **columns,
    )
    about = {"kind": str(columns["kind"]), "project": str(columns.get("project_id") or "")}
    emit(actor.organization_id, "key.created", {"key_id": str(key_id), **about}, using)
    record_audit(actor, "key.created", "key", key_id, about, using)
    return IssuedKey(key_id=key_id, secret=secret, prefix=secret[:SHOWN_PREFIX_LENGTH])


def _maker(actor: Actor, using: str) -> UUID | None:
    """The person behind it: an admin key's keys end with its own maker's rights."""
    making = acting_key(actor, using)
    if making is not None:
        return making.created_by
    return actor.actor_id if actor.kind is ActorKind.USER else None


def _locked(actor: Actor, key_id: UUID, using: str) -> ApiKey:
    """The row, locked; an admin key only for an actor who may do as much."""
    row = (
        ApiKey.objects.using(using)
        .select_for_update(no_key=True)
        .filter(organization_id=actor.organization_id, id=key_id)
        .first()
    )
    if row is None:
        raise TenantObjectNotFound("no such key")
    require_at_least(actor, allowed_from(row.permissions))
    return row


def _require_working(row: ApiKey) -> None:
    expired = row.expires_at is not None and row.expires_at <= datetime.now(UTC)
    if row.revoked_at is not None or expired:
        raise TenantConflict("the key does not work any more: create another one")


def _require_future(expires_at: datetime | None) -> None:
    if expires_at is None:
        return
    if expires_at <= datetime.now(UTC):
        raise InvalidValue("expires_at", "this moment has passed")
    if expires_at >= EXPIRES_BEFORE:
        raise InvalidValue("expires_at", f"this moment is after the year {EXPIRES_BEFORE.year - 1}")


def _require_room(actor: Actor, using: str) -> None:
    keys = ApiKey.objects.using(using).filter(
        organization_id=actor.organization_id, revoked_at=None
    )
    if keys.count() >= KEYS_MAX:
        raise LimitReached("keys", f"there are {KEYS_MAX} keys already: revoke some")


def _require_project(project_id: UUID, using: str) -> None:
    project = Project.objects.using(using).filter(id=project_id).first()
    if project is None:
        raise TenantObjectNotFound("no such project")
    if project.archived_at is not None:
        raise TenantConflict("the project is archived")


def _require_service_account(project_id: UUID, service_account_id: UUID, using: str) -> None:
    account = (
        ServiceAccountRow.objects.using(using)
        .filter(id=service_account_id, project_id=project_id)
        .first()
    )
    if account is None:
        raise TenantObjectNotFound("no such service account")
    if account.disabled_at is not None:
        raise TenantConflict("the service account is disabled")
