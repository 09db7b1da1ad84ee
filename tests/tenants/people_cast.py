"""The cast of people: users, and an organization with one member in each role."""

from dataclasses import dataclass
from uuid import UUID, uuid4

from tenants import facade
from tenants.contracts import Actor, Role
from tenants.models import User
from tests.tenants.cast import Tenant, make_tenant

IP = "192.0.2.7"


@dataclass(frozen=True)
class Person:
    """A user who may sign in."""

    user_id: UUID
    email: str

    def at(self, tenant: Tenant) -> Actor:
        """The person as an actor of an organization they belong to."""
        return facade.actor_for_user(
            self.user_id, tenant.organization_id, IP, uuid4(), has_second_factor=False
        )


def make_person(name: str = "ada") -> Person:
    """A fresh user without a password: tests share the database and never meet."""
    user = User.objects.db_manager("housekeeper").create_user(
        f"{name}-{uuid4().hex[:12]}@example.org"
    )
    return Person(user.id, user.email)


@dataclass(frozen=True)
class Company:
    """An organization and one member in each role."""

    tenant: Tenant
    people: dict[Role, Person]

    def actor(self, role: Role) -> Actor:
        """The member of that role, now."""
        return self.people[role].at(self.tenant)

    @property
    def owner(self) -> Actor:
        """The owner, now."""
        return self.actor(Role.OWNER)


def make_company(name: str = "acme") -> Company:
    """A fresh organization with five members."""
    tenant = make_tenant(name)
    people = {role: make_person(role.value) for role in Role}
    for role, person in people.items():
        facade.add_member(tenant.organization_id, person.user_id, role)
    return Company(tenant, people)
