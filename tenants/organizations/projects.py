"""Projects: making, finding, renaming, limiting and archiving them.

An archived project admits no request and never comes back. Called by the management API, and by
the seed and the operator's commands for new tenants.
"""

from uuid import UUID

from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from tenants.audit import record_audit
from tenants.contracts import (
    NO_LIMITS,
    ROWS_MAX,
    Actor,
    LimitReached,
    MinuteLimits,
    Permission,
    ProjectInfo,
    TenantConflict,
    TenantObjectNotFound,
)
from tenants.keys.settings import checked_name
from tenants.models import Project
from tenants.organizations.minute_limits import limits_from_json, limits_to_json
from tenants.people.permissions import operator_of
from tenants.scope import APP_ALIAS, tenant_scope

PROJECTS_MAX = 1_000
"""Of one organization, archived ones aside."""


def open_project(actor: Actor, name: str, limits: MinuteLimits = NO_LIMITS) -> ProjectInfo:
    """A new project. Raises InvalidValue, TenantConflict for too many; limits need their right."""
    actor.require(Permission.PROJECTS_WRITE)
    if limits != NO_LIMITS:
        actor.require(Permission.LIMITS_WRITE)
    with tenant_scope(actor.organization_id):
        if Project.objects.filter(archived_at=None).count() >= PROJECTS_MAX:
            raise LimitReached(
                "projects", f"there are {PROJECTS_MAX} projects already: archive some"
            )
        project_id = _insert(actor, checked_name(name), limits, APP_ALIAS)
        return _project(Project.objects.get(id=project_id))


def update_project(
    actor: Actor, project_id: UUID, *, name: str | None = None, limits: MinuteLimits | None = None
) -> ProjectInfo:
    """Rename, or set all minute limits anew; what is None stays.

    Raises InvalidValue, TenantObjectNotFound, TenantConflict for an archived project.
    """
    actor.require(Permission.PROJECTS_WRITE)
    if limits is not None:
        actor.require(Permission.LIMITS_WRITE)
    with tenant_scope(actor.organization_id):
        row = Project.objects.select_for_update(no_key=True).filter(id=project_id).first()
        if row is None:
            raise TenantObjectNotFound("no such project")
        if row.archived_at is not None:
            raise TenantConflict("the project is archived")
        if name is not None:
            row.name = checked_name(name)
            row.save(update_fields=["name"])
            record_audit(actor, "project.renamed", "project", project_id)
        if limits is not None:
            before, row.limits = row.limits, limits_to_json(limits)
            row.save(update_fields=["limits"])
            record_audit(
                actor, "limit.changed", "project", project_id, {"from": before, "to": row.limits}
            )
        return _project(row)


def close_project(actor: Actor, project_id: UUID, using: str = APP_ALIAS) -> ProjectInfo:
    """Archive: its keys stop at once; again changes nothing. Raises TenantObjectNotFound."""
    actor.require(Permission.PROJECTS_WRITE)
    with tenant_scope(actor.organization_id, using):
        row = _archive(actor, project_id, using)
        if row is None:
            raise TenantObjectNotFound("no such project")
        return _project(row)


def read_project(actor: Actor, project_id: UUID) -> ProjectInfo:
    """One project; raises TenantObjectNotFound."""
    actor.require(Permission.PROJECTS_READ)
    with tenant_scope(actor.organization_id):
        row = Project.objects.filter(id=project_id).first()
    if row is None:
        raise TenantObjectNotFound("no such project")
    return _project(row)


def list_projects(
    actor: Actor,
    *,
    with_archived: bool = False,
    rows_max: int = ROWS_MAX,
    after: UUID | None = None,
    ascending: bool = False,
) -> list[ProjectInfo]:
    """Projects, newest first unless `ascending`."""
    actor.require(Permission.PROJECTS_READ)
    with tenant_scope(actor.organization_id):
        rows = Project.objects.all() if with_archived else Project.objects.filter(archived_at=None)
        if after is not None:
            rows = rows.filter(**{"id__gt" if ascending else "id__lt": after})
        return [_project(row) for row in rows.order_by("id" if ascending else "-id")[:rows_max]]


def create_project(
    organization_id: UUID,
    name: str,
    using: str = APP_ALIAS,
    *,
    limits: MinuteLimits = NO_LIMITS,
) -> UUID:
    """A new project, made by the operator; returns its id."""
    with tenant_scope(organization_id, using):
        return _insert(operator_of(organization_id), name, limits, using)


def archive_project(organization_id: UUID, project_id: UUID, using: str = APP_ALIAS) -> None:
    """Archive as the operator; again, or an unknown one, changes nothing."""
    with tenant_scope(organization_id, using):
        _archive(operator_of(organization_id), project_id, using)


def _insert(actor: Actor, name: str, limits: MinuteLimits, using: str) -> UUID:
    project_id: UUID = uuid7()
    Project.objects.using(using).create(
        id=project_id,
        organization_id=actor.organization_id,
        name=name,
        limits=limits_to_json(limits),
    )
    record_audit(actor, "project.created", "project", project_id, using=using)
    return project_id


def _archive(actor: Actor, project_id: UUID, using: str) -> Project | None:
    rows = Project.objects.using(using).filter(organization_id=actor.organization_id, id=project_id)
    if rows.filter(archived_at=None).update(archived_at=Now()):
        record_audit(actor, "project.archived", "project", project_id, using=using)
    return rows.first()


def _project(row: Project) -> ProjectInfo:
    return ProjectInfo(
        project_id=row.id,
        name=row.name,
        limits=limits_from_json(row.limits),
        created_at=row.created_at,
        archived_at=row.archived_at,
    )
