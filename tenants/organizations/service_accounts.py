"""Service accounts: programs that act in one project, with keys of their own.

Disabling one stops its keys at once and for good. Called by the management API.
"""

from uuid import UUID

from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from tenants.audit import record_audit
from tenants.contracts import (
    ROWS_MAX,
    Actor,
    IssuedKey,
    KeySettings,
    LimitReached,
    Permission,
    ServiceAccount,
    TenantConflict,
    TenantObjectNotFound,
)
from tenants.keys.lifecycle import create_key
from tenants.keys.reading import require_project_here
from tenants.keys.settings import checked_name
from tenants.models import ApiKey, Project, ServiceAccountRow
from tenants.people.standing import acting
from tenants.scope import tenant_scope

SERVICE_ACCOUNTS_MAX = 1_000
"""Of one organization, disabled ones aside."""


def create_service_account(actor: Actor, project_id: UUID, name: str) -> ServiceAccount:
    """An account without keys yet. Raises InvalidValue, TenantObjectNotFound, TenantConflict."""
    with acting(actor, Permission.KEYS_WRITE) as actor:
        project = Project.objects.filter(id=project_id).first()
        if project is None:
            raise TenantObjectNotFound("no such project")
        if project.archived_at is not None:
            raise TenantConflict("the project is archived")
        if ServiceAccountRow.objects.filter(disabled_at=None).count() >= SERVICE_ACCOUNTS_MAX:
            raise LimitReached(
                "service_accounts", f"there are {SERVICE_ACCOUNTS_MAX} service accounts already"
            )
        row = ServiceAccountRow.objects.create(
            id=uuid7(),
            organization_id=actor.organization_id,
            project_id=project_id,
            name=checked_name(name),
        )
        record_audit(
            actor,
            "service_account.created",
            "service_account",
            row.id,
            {"project": str(project_id)},
        )
        return _service_account(row)


def create_service_account_with_key(
    actor: Actor, project_id: UUID, settings: KeySettings
) -> tuple[ServiceAccount, IssuedKey]:
    """An account and its first key, or neither; raises what either raises."""
    with tenant_scope(actor.organization_id):
        account = create_service_account(actor, project_id, settings.name)
        return account, create_key(actor, project_id, settings, account.service_account_id)


def key_of_service_account(actor: Actor, project_id: UUID, settings: KeySettings) -> UUID:
    """The key by which the project's account of this name works; made at the first use, both.

    One that was disabled or revoked is not used again: the next use makes another. Nobody learns
    the secret. Raises TenantObjectNotFound, TenantConflict, PermissionDenied.
    """
    with tenant_scope(actor.organization_id):
        found = _working_key(project_id, settings.name)
    if found is not None:
        return found
    with acting(actor, Permission.KEYS_WRITE) as actor:
        # Of two first uses at once the second finds what the first has made.
        found = _working_key(project_id, settings.name)
        if found is not None:
            return found
        accounts = ServiceAccountRow.objects.filter(
            project_id=project_id, name=settings.name, disabled_at=None
        )
        account_id = accounts.order_by("id").values_list("id", flat=True).first()
        if account_id is None:
            account_id = create_service_account(actor, project_id, settings.name).service_account_id
        return create_key(actor, project_id, settings, account_id).key_id


def list_service_accounts(
    actor: Actor,
    project_id: UUID | None = None,
    *,
    with_disabled: bool = True,
    rows_max: int = ROWS_MAX,
    after: UUID | None = None,
    ascending: bool = False,
) -> list[ServiceAccount]:
    """Accounts, of one project if asked, newest first unless `ascending`.

    Raises TenantObjectNotFound for a project that is not here.
    """
    actor.require(Permission.KEYS_READ)
    with tenant_scope(actor.organization_id):
        rows = ServiceAccountRow.objects.all()
        if not with_disabled:
            rows = rows.filter(disabled_at=None)
        if project_id is not None:
            require_project_here(project_id)
            rows = rows.filter(project_id=project_id)
        if after is not None:
            rows = rows.filter(**{"id__gt" if ascending else "id__lt": after})
        ordered = rows.order_by("id" if ascending else "-id")
        return [_service_account(row) for row in ordered[:rows_max]]


def read_service_account(actor: Actor, service_account_id: UUID) -> ServiceAccount:
    """One account; raises TenantObjectNotFound."""
    actor.require(Permission.KEYS_READ)
    with tenant_scope(actor.organization_id):
        row = ServiceAccountRow.objects.filter(id=service_account_id).first()
    if row is None:
        raise TenantObjectNotFound("no such service account")
    return _service_account(row)


def disable_service_account(actor: Actor, service_account_id: UUID) -> None:
    """Its keys stop at once; again changes nothing. Raises TenantObjectNotFound."""
    actor.require(Permission.KEYS_WRITE)
    with tenant_scope(actor.organization_id):
        row = (
            ServiceAccountRow.objects.select_for_update(no_key=True)
            .filter(id=service_account_id)
            .first()
        )
        if row is None:
            raise TenantObjectNotFound("no such service account")
        if row.disabled_at is None:
            ServiceAccountRow.objects.filter(id=row.id).update(disabled_at=Now())
            record_audit(actor, "service_account.disabled", "service_account", row.id)


def _working_key(project_id: UUID, account_name: str) -> UUID | None:
    """The oldest, within the actor's scope."""
    keys = ApiKey.objects.filter(
        project_id=project_id,
        service_account__name=account_name,
        service_account__disabled_at=None,
        revoked_at=None,
        revoke_at=None,
    ).exclude(expires_at__lte=Now())
    found: UUID | None = keys.order_by("id").values_list("id", flat=True).first()
    return found


def _service_account(row: ServiceAccountRow) -> ServiceAccount:
    return ServiceAccount(
        service_account_id=row.id,
        project_id=row.project_id,
        name=row.name,
        created_at=row.created_at,
        disabled_at=row.disabled_at,
    )
