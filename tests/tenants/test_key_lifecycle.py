"""Keys do what they were made for, end when they were said to, and show no secret."""

import hashlib
from dataclasses import asdict, replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from billing.contracts import HoldRefusal
from billing.facade import hold
from tenants import facade
from tenants.contracts import (
    NO_PROJECT,
    InvalidValue,
    KeyInfo,
    KeyKind,
    KeyRejected,
    KeyScope,
    KeySettings,
    MinuteLimits,
    Permission,
    PermissionDenied,
    Role,
    TenantObjectNotFound,
)
from tests.billing.cast import make_tenant as make_buyer
from tests.tenants.people_cast import Company, make_company

NARROW = KeySettings(
    name="narrow",
    scopes=frozenset({KeyScope.CHAT, KeyScope.MODELS}),
    models=frozenset({"small", "vendor/large:1"}),
    cidrs=("10.0.0.0/8", "2001:db8::/32"),
    expires_at=datetime(2100, 1, 1, tzinfo=UTC),
    limits=MinuteLimits(requests_max=10, input_tokens_max=1_000),
    end_user_limits=MinuteLimits(tokens_max=50, concurrent_max=1),
)


@pytest.fixture
def acme(django_database: object) -> Company:
    """The organization whose keys these are."""
    return make_company("acme")


@pytest.fixture
def globex(django_database: object) -> Company:
    """The organization that must not reach them."""
    return make_company("globex")


def shown(company: Company, key_id: UUID) -> KeyInfo:
    """What the owner sees of a key."""
    return facade.read_key(company.owner, key_id)


def works(secret: str) -> bool:
    """Whether the secret opens the door."""
    try:
        facade.authenticate(secret)
    except KeyRejected:
        return False
    return True


def test_a_key_carries_what_it_was_set_to(acme: Company) -> None:
    developer = acme.actor(Role.DEVELOPER)

    issued = facade.create_key(developer, acme.tenant.project_id, NARROW)

    identity = facade.authenticate(issued.secret)
    assert identity.scopes == NARROW.scopes
    assert identity.models == NARROW.models
    assert identity.cidrs == NARROW.cidrs
    assert identity.expires_at == NARROW.expires_at
    assert (identity.key_limits, identity.end_user_limits) == (
        NARROW.limits,
        NARROW.end_user_limits,
    )
    assert identity.permissions == frozenset()
    info = shown(acme, issued.key_id)
    assert info.settings == NARROW
    assert info.created_by == developer.actor_id


def test_a_key_says_what_its_organization_and_project_decided(acme: Company) -> None:
    limits = MinuteLimits(output_tokens_max=7)
    facade.update_project(acme.owner, acme.tenant.project_id, limits=limits)
    facade.update_organization(
        acme.owner,
        time_zone="Europe/Amsterdam",
        cost_tags=["team", "feature"],
        cache_per_project=True,
        prompts_kept_days=30,
    )
    facade.set_organization_limits(
        acme.tenant.organization_id, MinuteLimits(requests_max=5, input_tokens_max=9)
    )

    identity = facade.authenticate(acme.tenant.secret)

    assert identity.project_limits == limits
    assert identity.time_zone == "Europe/Amsterdam"
    assert identity.cost_tags == {"team", "feature"}
    assert identity.cache_per_project
    assert identity.prompts_kept_days == 30
    assert (identity.requests_per_minute_max, identity.tokens_per_minute_max) == (5, 1_000_000)
    assert (identity.input_tokens_per_minute_max, identity.output_tokens_per_minute_max) == (
        9,
        None,
    )


def test_a_list_of_keys_shows_no_secret_and_no_hash(acme: Company) -> None:
    issued = facade.create_key(acme.owner, acme.tenant.project_id, NARROW)
    hashed = hashlib.sha256(issued.secret.encode())

    [listed] = facade.list_keys(acme.owner, KeyKind.PROJECT, rows_max=1)

    text = str(asdict(listed))
    assert listed.key_id == issued.key_id
    assert issued.secret.startswith(listed.prefix) and issued.secret.endswith(listed.last4)
    for hidden in (issued.secret, issued.secret[9:-4], hashed.hexdigest(), str(hashed.digest())):
        assert hidden not in text


def test_keys_are_listed_in_pages_and_by_project(acme: Company, globex: Company) -> None:
    other = facade.open_project(acme.owner, "other").project_id
    made = [
        facade.create_key(acme.owner, project, KeySettings(name=str(number))).key_id
        for number, project in enumerate([other, acme.tenant.project_id, other])
    ]

    everything = facade.list_keys(acme.owner, KeyKind.PROJECT)
    first = facade.list_keys(acme.owner, KeyKind.PROJECT, rows_max=2)
    rest = facade.list_keys(acme.owner, KeyKind.PROJECT, after=first[-1].key_id)
    of_other = facade.list_keys(acme.owner, KeyKind.PROJECT, other, ascending=True)

    assert [key.key_id for key in everything] == [*reversed(made), acme.tenant.key_id]
    assert [*first, *rest] == everything
    assert [key.key_id for key in of_other] == [made[0], made[2]]


WRONG = [
    ("name", KeySettings(name=" ")),
    ("name", KeySettings(name="x" * 121)),
    ("scopes", KeySettings(name="x", scopes=frozenset())),
    ("models", KeySettings(name="x", models=frozenset())),
    ("models", KeySettings(name="x", models=frozenset({""}))),
    ("cidrs", KeySettings(name="x", cidrs=("10.0.0.1/8",))),
    ("cidrs", KeySettings(name="x", cidrs=("everywhere",))),
    ("cidrs", KeySettings(name="x", cidrs=tuple(f"10.0.{n}.0/24" for n in range(101)))),
    ("expires_at", KeySettings(name="x", expires_at=datetime(2020, 1, 1, tzinfo=UTC))),
    ("limits.requests_max", KeySettings(name="x", limits=MinuteLimits(requests_max=0))),
    ("end_user_limits.tokens_max", KeySettings("x", end_user_limits=MinuteLimits(tokens_max=-1))),
]


@pytest.mark.parametrize(("param", "settings"), WRONG)
def test_a_setting_that_cannot_be_is_named(
    acme: Company, param: str, settings: KeySettings
) -> None:
    with pytest.raises(InvalidValue) as refusal:
        facade.create_key(acme.owner, acme.tenant.project_id, settings)

    assert refusal.value.param == param
    assert len(facade.list_keys(acme.owner, KeyKind.PROJECT)) == 1


def test_a_changed_key_keeps_its_secret(acme: Company) -> None:
    issued = facade.create_key(acme.owner, acme.tenant.project_id, KeySettings(name="wide"))

    info = facade.update_key(acme.owner, issued.key_id, lambda _: NARROW)

    assert info.settings == NARROW
    assert facade.authenticate(issued.secret).scopes == NARROW.scopes


def test_a_stranger_reaches_no_key(acme: Company, globex: Company) -> None:
    key_id = acme.tenant.key_id
    for touch in (
        lambda: facade.read_key(globex.owner, key_id),
        lambda: facade.update_key(globex.owner, key_id, lambda _: NARROW),
        lambda: facade.rotate_key(globex.owner, key_id),
        lambda: facade.revoke_key_as(globex.owner, key_id),
        lambda: facade.create_key(globex.owner, acme.tenant.project_id, NARROW),
    ):
        with pytest.raises(TenantObjectNotFound):
            touch()
    assert works(acme.tenant.secret)


def test_who_may_not_write_keys_makes_changes_and_ends_none(acme: Company) -> None:
    viewer = acme.actor(Role.VIEWER)
    for touch in (
        lambda: facade.create_key(viewer, acme.tenant.project_id, NARROW),
        lambda: facade.update_key(viewer, acme.tenant.key_id, lambda _: NARROW),
        lambda: facade.rotate_key(viewer, acme.tenant.key_id),
        lambda: facade.revoke_key_as(viewer, acme.tenant.key_id),
    ):
        with pytest.raises(PermissionDenied):
            touch()


# --- admin keys ---


def test_an_admin_key_administers_and_has_no_project(acme: Company) -> None:
    issued = facade.create_admin_key(
        acme.owner, "terraform", frozenset({Permission.PROJECTS_READ, Permission.PROJECTS_WRITE})
    )

    identity = facade.authenticate(issued.secret)
    actor = facade.actor_for_key(identity)

    assert (identity.kind, identity.project_id) == (KeyKind.ADMIN, NO_PROJECT)
    assert (identity.scopes, identity.models) == (frozenset(), None)
    assert facade.open_project(actor, "made by a key").name == "made by a key"
    with pytest.raises(PermissionDenied):
        facade.list_members(actor)


def test_an_admin_key_holds_no_more_than_its_maker(acme: Company) -> None:
    everything = frozenset(Permission)

    assert facade.create_admin_key(acme.owner, "all", everything).secret
    with pytest.raises(PermissionDenied):
        facade.create_admin_key(acme.actor(Role.ADMIN), "all", everything)
    with pytest.raises(PermissionDenied):
        facade.create_admin_key(
            acme.actor(Role.DEVELOPER), "own", frozenset({Permission.KEYS_READ})
        )


def test_an_admin_key_of_more_rights_is_out_of_reach(acme: Company) -> None:
    issued = facade.create_admin_key(acme.owner, "owner's", frozenset(Permission))

    for touch in (facade.rotate_key, facade.revoke_key_as):
        with pytest.raises(PermissionDenied):
            touch(acme.actor(Role.ADMIN), issued.key_id)
    assert works(issued.secret)


def test_an_admin_key_never_holds_money(acme: Company) -> None:
    buyer = make_buyer()
    actor = facade.operator_of(buyer.organization_id)
    issued = facade.create_admin_key(actor, "admin", frozenset({Permission.USAGE_READ}))

    [outcome] = hold([replace(buyer.request(), key_id=issued.key_id)])

    assert outcome.refusal is HoldRefusal.KEY_REVOKED
