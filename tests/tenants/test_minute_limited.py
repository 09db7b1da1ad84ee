"""Whose requests of a minute are bounded, in one answer: only what is in use, only one's own."""

from dataclasses import replace
from uuid import UUID

import pytest

from tenants import facade
from tenants.contracts import (
    NO_LIMITS,
    Actor,
    ActorKind,
    MinuteLimits,
    Permission,
    PermissionDenied,
)
from tests.tenants.cast import Tenant, make_tenant

TIGHT = MinuteLimits(tokens_max=10)


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """The tenant whose limits they are."""
    return make_tenant("acme")


def limit_key(actor: Actor, key_id: UUID, limits: MinuteLimits, end_users: MinuteLimits) -> None:
    facade.update_key(
        actor, key_id, lambda found: replace(found, limits=limits, end_user_limits=end_users)
    )


def test_the_organization_its_projects_and_its_keys_are_told(acme: Tenant) -> None:
    actor = facade.operator_of(acme.organization_id)
    globex = make_tenant("globex")
    theirs = facade.operator_of(globex.organization_id)
    facade.update_project(theirs, globex.project_id, limits=TIGHT)
    before = facade.minute_limited(actor)
    facade.update_project(actor, acme.project_id, limits=TIGHT)
    limit_key(actor, acme.key_id, NO_LIMITS, TIGHT)

    found = facade.minute_limited(actor)

    assert [(one.scope, one.scope_id) for one in before] == [("organization", acme.organization_id)]
    assert before[0].limits == facade.read_organization(actor).limits
    assert [(one.scope, one.scope_id) for one in found[1:]] == [
        ("project", acme.project_id),
        ("key", acme.key_id),
    ]
    assert [(one.limits, one.end_user_limits) for one in found[1:]] == [
        (TIGHT, NO_LIMITS),
        (NO_LIMITS, TIGHT),
    ]


def test_a_revoked_key_bounds_nobody(acme: Tenant) -> None:
    actor = facade.operator_of(acme.organization_id)
    limit_key(actor, acme.key_id, TIGHT, NO_LIMITS)
    facade.revoke_key_as(actor, acme.key_id)

    assert [one.scope for one in facade.minute_limited(actor)] == ["organization"]


def test_limits_are_for_who_may_read_them(acme: Tenant) -> None:
    actor = Actor(
        ActorKind.USER, None, acme.organization_id, frozenset({Permission.ORGANIZATION_READ})
    )

    with pytest.raises(PermissionDenied):
        facade.minute_limited(actor)
