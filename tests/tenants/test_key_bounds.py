"""An admin key gets out of its own expiry and networks neither by itself nor by another key."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tenants import facade
from tenants.contracts import (
    Actor,
    InvalidValue,
    KeyInfo,
    KeyKind,
    KeyRejected,
    KeySettings,
    Permission,
    Role,
    TenantConflict,
)
from tests.headrace.door import Door
from tests.tenants.people_cast import Company, make_company

ENDS_AT = datetime(2100, 1, 1, tzinfo=UTC)
NETWORKS = ("10.0.0.0/8", "127.0.0.0/8", "2001:db8::/32")


@pytest.fixture
def acme(django_database: object) -> Company:
    """The organization whose keys these are."""
    return make_company("acme")


def make_key(
    company: Company, cidrs: tuple[str, ...] = NETWORKS, expires_at: datetime | None = ENDS_AT
) -> tuple[Actor, str]:
    """An admin key with all permissions, as an actor, and its secret."""
    issued = facade.create_admin_key(company.owner, "ci", frozenset(Permission), cidrs, expires_at)
    return facade.actor_for_key(facade.authenticate(issued.secret)), issued.secret


def admin_keys(company: Company) -> list[KeyInfo]:
    """All admin keys, as the owner sees them."""
    return facade.list_keys(company.owner, KeyKind.ADMIN)


def test_a_key_neither_changes_nor_rotates_itself(acme: Company) -> None:
    actor, secret = make_key(acme)
    before = admin_keys(acme)
    path = f"/api/v1/organizations/{acme.tenant.organization_id}/keys/{actor.actor_id}"

    answers = [
        Door(secret).patch(path, json={"expires_at": None, "cidrs": []}),
        Door(secret).patch(path, json={"name": "free"}),
        Door(secret).post(f"{path}/rotate", json={"grace_s": 0}),
    ]

    assert [answer.status_code for answer in answers] == [409, 409, 409]
    assert admin_keys(acme) == [
        replace(key, last_used_at=now.last_used_at)
        for key, now in zip(before, admin_keys(acme), strict=True)
    ]


def test_a_key_may_revoke_itself(acme: Company) -> None:
    actor, secret = make_key(acme)
    assert actor.actor_id is not None

    facade.revoke_key_as(actor, actor.actor_id)

    with pytest.raises(KeyRejected):
        facade.authenticate(secret)


def test_a_key_in_its_grace_does_not_change_its_successor(acme: Company) -> None:
    actor, _ = make_key(acme)
    assert actor.actor_id is not None
    successor = facade.rotate_key(acme.owner, actor.actor_id, grace_s=60)

    for act in (
        lambda: facade.rotate_key(actor, successor.key_id),
        lambda: facade.update_key(actor, successor.key_id, lambda _: KeySettings("free")),
    ):
        with pytest.raises(TenantConflict):
            act()


def test_a_key_by_another_has_its_bounds_unless_told(acme: Company) -> None:
    actor, _ = make_key(acme)

    facade.create_admin_key(actor, "child", frozenset({Permission.KEYS_READ}))
    facade.create_admin_key(
        actor,
        "narrower",
        frozenset({Permission.KEYS_READ}),
        ("10.1.0.0/16", "2001:db8:1::/48"),
        ENDS_AT - timedelta(days=1),
    )

    narrower, child = (key.settings for key in admin_keys(acme)[:2])
    assert (set(child.cidrs), child.expires_at) == (set(NETWORKS), ENDS_AT)
    assert set(narrower.cidrs) == {"10.1.0.0/16", "2001:db8:1::/48"}
    assert narrower.expires_at == ENDS_AT - timedelta(days=1)


WIDER = [
    ("expires_at", {"expires_at": ENDS_AT + timedelta(seconds=1)}),
    ("cidrs", {"cidrs": ("10.0.0.0/8", "0.0.0.0/0")}),
    ("cidrs", {"cidrs": ("10.0.0.0/7",)}),
    ("cidrs", {"cidrs": ("::/0",)}),
]


@pytest.mark.parametrize(("param", "wider"), WIDER)
def test_a_key_makes_and_changes_none_that_is_wider(
    acme: Company, param: str, wider: dict[str, object]
) -> None:
    actor, _ = make_key(acme)
    sibling, _ = make_key(acme)
    assert sibling.actor_id is not None
    before = admin_keys(acme)

    for act in (
        lambda: facade.create_admin_key(actor, "wide", frozenset(Permission), **wider),  # type: ignore[arg-type]  # each has its own type
        lambda: facade.update_key(
            actor,
            sibling.actor_id,
            lambda settings: replace(settings, **wider),  # type: ignore[arg-type]  # as above
        ),
    ):
        with pytest.raises(InvalidValue) as refusal:
            act()
        assert refusal.value.param == param
    assert admin_keys(acme) == before


@pytest.mark.parametrize(("cidrs", "expires_at"), [((), ENDS_AT), (NETWORKS, None)])
def test_a_key_takes_over_none_that_is_wider(
    acme: Company, cidrs: tuple[str, ...], expires_at: datetime | None
) -> None:
    actor, _ = make_key(acme)
    wider, secret = make_key(acme, cidrs, expires_at)
    assert wider.actor_id is not None

    with pytest.raises(InvalidValue):
        facade.rotate_key(actor, wider.actor_id)

    assert facade.authenticate(secret).expires_at == expires_at
    assert len(admin_keys(acme)) == 2


def test_a_key_in_its_grace_makes_none_that_outlives_the_grace(acme: Company) -> None:
    actor, _ = make_key(acme, (), None)
    assert actor.actor_id is not None
    facade.rotate_key(acme.owner, actor.actor_id, grace_s=60)
    ends_at = facade.read_key(acme.owner, actor.actor_id).revoke_at

    child = facade.create_admin_key(actor, "child", frozenset({Permission.KEYS_READ}))

    assert facade.read_key(acme.owner, child.key_id).settings.expires_at == ends_at
    offered = facade.invite(actor, "late@example.org", Role.VIEWER)
    assert offered.invitation.expires_at == ends_at
