"""The two sides of the matrix: acme, who asks, and globex, who must not be seen.

Each has two projects, a member of every role, keys of both kinds, and an operator's actor for
making objects through the facades.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from uuid import UUID, uuid4

from billing.facade import grant_credit, open_account
from tenants.contracts import Actor, Role
from tenants.facade import (
    add_member,
    create_organization,
    create_project,
    issue_key,
    operator_of,
)
from tests.headrace.door import Door, admin_key, new_user

CREDIT_PICO = 100 * 10**12


@dataclass(frozen=True)
class Side:
    """An organization with somebody of each kind in it."""

    organization_id: UUID
    project_id: UUID
    sibling_project_id: UUID
    key_id: UUID
    users: Mapping[Role, UUID]
    members: Mapping[Role, Door]
    """Signed in a moment ago."""
    long_ago: Door
    """The owner, whose sign-in is no longer recent."""
    admin: Door
    """An admin key with every permission."""
    project: Door
    """A key of the first project."""
    sibling: Door
    """A key of the second."""

    @property
    def actor(self) -> Actor:
        """Somebody who may do everything here, for making objects."""
        return operator_of(self.organization_id)

    @property
    def owner(self) -> Door:
        """The owner's session."""
        return self.members[Role.OWNER]


def make_side(name: str) -> Side:
    """A fresh organization with everybody in it."""
    organization_id = create_organization(f"{name}-{uuid4().hex[:12]}", name).organization_id
    open_account(organization_id)
    grant_credit(organization_id, CREDIT_PICO, "first")
    projects = [
        create_project(organization_id, one, using="housekeeper") for one in ("main", "sibling")
    ]
    keys = [issue_key(organization_id, one, "test", using="housekeeper") for one in projects]
    users = {role: new_user() for role in Role}
    for role, user_id in users.items():
        add_member(organization_id, user_id, role)
    return Side(
        organization_id=organization_id,
        project_id=projects[0],
        sibling_project_id=projects[1],
        key_id=keys[0].key_id,
        users=users,
        members={role: Door().sign_in(user_id) for role, user_id in users.items()},
        long_ago=Door().sign_in(users[Role.OWNER], seconds_ago=3600),
        admin=Door(admin_key(organization_id)),
        project=Door(keys[0].secret),
        sibling=Door(keys[1].secret),
    )


@cache
def both() -> tuple[Side, Side]:
    """Acme and globex of this test run."""
    return make_side("acme"), make_side("globex")
