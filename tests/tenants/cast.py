"""The cast of tenants: organizations with a project and a key."""

from dataclasses import dataclass
from uuid import UUID, uuid4

from tenants import facade


@dataclass(frozen=True)
class Tenant:
    """An organization, one project of it, and that project's key."""

    organization_id: UUID
    slug: str
    project_id: UUID
    key_id: UUID
    secret: str


def make_tenant(name: str) -> Tenant:
    """A fresh organization: tests share the database and never meet."""
    organization = facade.create_organization(f"{name}-{uuid4().hex[:12]}", name)
    project_id = facade.create_project(organization.organization_id, "demo")
    key = facade.issue_key(organization.organization_id, project_id, "test")
    return Tenant(
        organization_id=organization.organization_id,
        slug=organization.slug,
        project_id=project_id,
        key_id=key.key_id,
        secret=key.secret,
    )
