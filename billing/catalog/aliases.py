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
from tenants.facade import tenant_scope

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")
FORBIDDEN = re.compile(r"//|\.\.|/\Z")
ALIASES_MAX = 1_000
"""Aliases of one organization."""
ONCE, IN_ITS_PROJECT = "billing_alias_once", "billing_alias_in_its_project"


def aliases(actor: Actor, project_id: UUID | None = None, using: str = "default") -> list[Alias]:
    """The organization's aliases by name; of a project: its own and the organization's."""
    actor.require(Permission.CATALOG_READ)
    wanted = Q() if project_id is None else Q(project_id=project_id) | Q(project_id=None)
    with tenant_scope(actor.organization_id, using):
        rows = list(_rows(actor, using).filter(wanted).order_by("name", "project_id"))
    return [_alias(row) for row in rows]


def alias(actor: Actor, alias_id: UUID, using: str = "default") -> Alias:
    """One alias. Raises AliasNotFound, for another tenant's too."""
    actor.require(Permission.CATALOG_READ)
    with tenant_scope(actor.organization_id, using):
        return _alias(_found(actor, alias_id, using))


def create_alias(
    actor: Actor,
    name: str,
    public_id: str,
    project_id: UUID | None = None,
    using: str = "default",
) -> Alias:
    """Let `name` mean an offer, in one project or (None) in all of the organization.

    Raises AliasInvalid for a bad name, an unknown or retired model or an unknown project, and
    AliasExists; of two callers at once, one gets that.
    """
    actor.require(Permission.CATALOG_WRITE)
    if not NAME.fullmatch(name) or FORBIDDEN.search(name):
        raise AliasInvalid(
            "an alias has 1 to 128 letters, digits and . _ : / @ + -, and starts with a "
            "letter or a digit"
        )
    try:
        with tenant_scope(actor.organization_id, using):
            if _rows(actor, using).count() >= ALIASES_MAX:
                raise AliasInvalid(f"an organization has at most {ALIASES_MAX} aliases")
            row = AliasRow(
                organization_id=actor.organization_id,
                project_id=project_id,
                name=name,
                offer=_offer(public_id, using),
            )
            row.save(using=using, force_insert=True)
            created = _alias(_found(actor, row.id, using))
    except IntegrityError as error:
        if ONCE in str(error):
            raise AliasExists(f"there is an alias {name} here") from error
        if IN_ITS_PROJECT in str(error):
            raise AliasInvalid("no such project") from error
        raise
    return created


def update_alias(actor: Actor, alias_id: UUID, public_id: str, using: str = "default") -> Alias:
    """Let an alias mean another offer from now on. Raises AliasNotFound or AliasInvalid."""
    actor.require(Permission.CATALOG_WRITE)
    with tenant_scope(actor.organization_id, using):
        row = _found(actor, alias_id, using)
        row.offer = _offer(public_id, using)
        row.save(using=using, update_fields=["offer"])
    return _alias(row)


def delete_alias(actor: Actor, alias_id: UUID, using: str = "default") -> None:
    """Let the name mean what it meant without the alias. Raises AliasNotFound."""
    actor.require(Permission.CATALOG_WRITE)
    with tenant_scope(actor.organization_id, using):
        _found(actor, alias_id, using).delete(using=using)


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
    )
    if offer is None:
        raise AliasInvalid(f"no such model: {public_id[:128]}")
    return offer


def _alias(row: AliasRow) -> Alias:
    return Alias(
        alias_id=row.id,
        name=row.name,
        public_id=row.offer.public_id,
        project_id=row.project_id,
        created_at=row.created_at,
    )
