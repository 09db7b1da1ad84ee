"""The cast of bulk jobs: tenants with a project and a key."""

import itertools
from dataclasses import dataclass
from uuid import UUID, uuid4

from tenants import facade

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Tenant:
    """An organization that asks for summaries."""

    organization_id: UUID
    project_id: UUID
    key_id: UUID
    secret: str


def make_tenant(name: str) -> Tenant:
    """A fresh organization: tests share the database and never meet."""
    organization = facade.create_organization(
        f"{name}-{next(_numbers)}-{uuid4().hex[:8]}", name, using="housekeeper"
    )
    organization_id = organization.organization_id
    project_id = facade.create_project(organization_id, "bulk", using="housekeeper")
    key = facade.issue_key(organization_id, project_id, "bulk", using="housekeeper")
    return Tenant(organization_id, project_id, key.key_id, key.secret)
