"""A tenant's own names for models: a script with another vendor's name in it runs unchanged.

An alias belongs to one project or to the whole organization, and goes before the catalog there and
nowhere else: row-level security keeps it from every other tenant. Past receipts keep the name asked
and the model served. Called by the management API and by operators' commands.
"""

import re
from uuid import UUID

from django.db import IntegrityError
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from billing.contracts import Alias, AliasExists, AliasInvalid, AliasNotFound
from billing.models import AliasRow, OfferRow
from tenants.contracts import Actor, Permission
from tenants.facade import record_audit, tenant_scope

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")
FORBIDDEN = re.compile(r"//|\.\.|/\Z")
ALIASES_MAX = 1_000
"""Aliases of one organization."""
ROWS_MAX = 101
ONCE, IN_ITS_PROJECT = "billing_alias_once", "billing_alias_in_its_project"
APP_ALIAS = "default"


def aliases(
    actor: Actor,
    rows_max: int = ROWS_MAX,
    after: UUID | None = None,
    *,
    project_id: UUID | None = None,
    ascending: bool = False,
) -> list[Alias]:
    """The organization's aliases, newest first, from behind the one named `after` on; of a project:
    its own and the organization's."""
    actor.require(Permission.CATALOG_READ)
    wanted = Q() if project_id is None else Q(project_id=project_id) | Q(project_id=None)
    if after is not None:
        wanted &= Q(id__gt=after) if ascending else Q(id__lt=after)
    with tenant_scope(actor.organization_id):
        rows = _rows(actor, APP_ALIAS).filter(wanted).order_by("id" if ascending else "-id")
        return [_alias(row) for row in rows[: min(rows_max, ROWS_MAX)]]


def alias(actor: Actor, alias_id: UUID) -> Alias:
    """One alias. Raises AliasNotFound, for another tenant's too."""
    actor.require(Permission.CATALOG_READ)
    with tenant_scope(actor.organization_id):
        return _alias(_found(actor, alias_id, APP_ALIAS))


def create_alias(
    actor: Actor,
    name: str,
    public_id: str,
    project_id: UUID | None = None,
    using: str = APP_ALIAS,
) -> Alias:
    """Let `name` mean an offer, in one project or (None) in all of the organization.

    Raises AliasInvalid for a bad name, an unknown or retired model or an unknown project, and
    AliasExists; of two callers at once, one gets that.
    """
    actor.require(Permission.CATALOG_WRITE)
    if not NAME.fullmatch(name) or FORBIDDEN.search(name):
        raise AliasInvalid(
            "name",
            "an alias has 1 to 128 letters, digits and . _ : / @ + - and starts with a letter or a"
            " digit",
        )
    try:
        with tenant_scope(actor.organization_id, using):
            if _rows(actor, using).count() >= ALIASES_MAX:
                raise AliasInvalid("name", f"an organization has at most {ALIASES_MAX} aliases")
            row = AliasRow(
                organization_id=actor.organization_id,
                project_id=project_id,
                name=name,
                offer=_offer(public_id, using),
            )
            row.save(using=using, force_insert=True)
            created = _alias(_found(actor, row.id, using))
            _audit(actor, "alias.created", created, using)
    except IntegrityError as error:
        if ONCE in str(error):
            raise AliasExists(f"There is an alias '{name}' here already.") from error
        if IN_ITS_PROJECT in str(error):
            raise AliasInvalid("project_id", "no such project") from error
        raise
    return created


def update_alias(actor: Actor, alias_id: UUID, public_id: str, using: str = APP_ALIAS) -> Alias:
    """Let an alias mean another offer from now on. Raises AliasNotFound or AliasInvalid."""
    actor.require(Permission.CATALOG_WRITE)
    with tenant_scope(actor.organization_id, using):
        row = _found(actor, alias_id, using)
        row.offer = _offer(public_id, using)
        row.save(using=using, update_fields=["offer"])
        changed = _alias(row)
        _audit(actor, "alias.changed", changed, using)
    return changed


def delete_alias(actor: Actor, alias_id: UUID, using: str = APP_ALIAS) -> None:
    """Let the name mean what it meant without the alias. Raises AliasNotFound."""
    actor.require(Permission.CATALOG_WRITE)
    with tenant_scope(actor.organization_id, using):
        row = _found(actor, alias_id, using)
        gone = _alias(row)
        row.delete(using=using)
        _audit(actor, "alias.deleted", gone, using)


def set_alias(
    actor: Actor, name: str, public_id: str, project_id: UUID | None = None, using: str = APP_ALIAS
) -> Alias:
    """Make `name` mean an offer, whether or not it is an alias yet. Raises AliasInvalid, and
    AliasExists if somebody else made it at the same moment."""
    with tenant_scope(actor.organization_id, using):
        of_project = Q(project=None) if project_id is None else Q(project_id=project_id)
        existing = _rows(actor, using).filter(of_project, name=name).first()
    if existing is not None:
        return update_alias(actor, existing.id, public_id, using)
    return create_alias(actor, name, public_id, project_id, using)


def _audit(actor: Actor, action: str, changed: Alias, using: str) -> None:
    details = {
        "name": changed.name,
        "model": changed.public_id,
        "project_id": str(changed.project_id) if changed.project_id else None,
    }
    record_audit(actor, action, "alias", changed.alias_id, details, using=using)


def _rows(actor: Actor, using: str) -> QuerySet[AliasRow]:
    return (
        AliasRow.objects.using(using)
        .filter(organization_id=actor.organization_id)
        .select_related("offer")
    )


def _found(actor: Actor, alias_id: UUID, using: str) -> AliasRow:
    row = _rows(actor, using).filter(id=alias_id).first()
    if row is None:
        raise AliasNotFound("no such alias")
    return row


def _offer(public_id: str, using: str) -> OfferRow:
    offer = (
        OfferRow.objects.using(using)
        .filter(Q(shutdown_at=None) | Q(shutdown_at__gt=Now()), public_id=public_id)
        .first()
        if "\0" not in public_id
        else None
    )
    if offer is None:
        raise AliasInvalid("model", f"no such model: {public_id[:128]}")
    return offer


def _alias(row: AliasRow) -> Alias:
    return Alias(
        alias_id=row.id,
        name=row.name,
        public_id=row.offer.public_id,
        project_id=row.project_id,
        created_at=row.created_at,
    )
