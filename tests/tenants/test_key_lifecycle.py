"""Keys do what they were made for, end when they were said to, and show no secret."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connections

from billing.contracts import HoldRefusal
from billing.facade import hold
from tenants import facade
from tenants.contracts import (
    NO_PROJECT,
    AlreadyRotated,
    InvalidValue,
    KeyInfo,
    KeyKind,
    KeyMalformed,
    KeyRejected,
    KeyScope,
    KeySettings,
    MinuteLimits,
    OrganizationStatus,
    OrganizationSuspended,
    Permission,
    PermissionDenied,
    Role,
    TenantConflict,
    TenantObjectNotFound,
)
from tests.billing.cast import at_once
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


# --- rotation ---


def test_a_rotated_key_and_its_successor_both_work_during_the_grace(acme: Company) -> None:
    old = facade.create_key(acme.owner, acme.tenant.project_id, NARROW)
    before = datetime.now(UTC)

    new = facade.rotate_key(acme.owner, old.key_id, grace_s=3600)

    ends_at = shown(acme, old.key_id).revoke_at
    assert ends_at is not None
    assert timedelta(hours=1) <= ends_at - before < timedelta(hours=1, minutes=1)
    # What caches go by: no later than the end of the grace.
    assert facade.authenticate(old.secret).expires_at == ends_at
    assert facade.authenticate(new.secret).expires_at == NARROW.expires_at
    assert shown(acme, new.key_id).settings == NARROW
    assert shown(acme, old.key_id).replaced_by == new.key_id


def test_without_a_grace_the_old_key_is_refused_at_once(acme: Company) -> None:
    new = facade.rotate_key(acme.owner, acme.tenant.key_id)

    assert not works(acme.tenant.secret)
    assert works(new.secret)
    assert facade.revoked_among([acme.tenant.key_id, new.key_id]) == {acme.tenant.key_id}


def end_grace(key_id: UUID, ends_at: datetime) -> None:
    """As if the grace had been given so as to end then."""
    with connections["owner"].cursor() as cursor:
        cursor.execute("ALTER TABLE tenants_api_key DISABLE TRIGGER tenants_grace_is_promised")
        cursor.execute("ALTER TABLE tenants_api_key NO FORCE ROW LEVEL SECURITY")
        cursor.execute("UPDATE tenants_api_key SET revoke_at = %s WHERE id = %s", [ends_at, key_id])
        cursor.execute("ALTER TABLE tenants_api_key FORCE ROW LEVEL SECURITY")
        cursor.execute("ALTER TABLE tenants_api_key ENABLE TRIGGER tenants_grace_is_promised")


def test_after_the_grace_every_door_refuses_the_key(django_database: object) -> None:
    buyer = make_buyer()
    actor = facade.operator_of(buyer.organization_id)
    facade.rotate_key(actor, buyer.key_id, grace_s=60)
    [within] = hold([buyer.request()])

    end_grace(buyer.key_id, datetime.now(UTC))

    [after] = hold([buyer.request()])
    assert (within.refusal, after.refusal) == (None, HoldRefusal.KEY_REVOKED)
    assert not works(buyer.secret)
    assert facade.revoked_among([buyer.key_id]) == {buyer.key_id}


def test_a_second_rotation_of_a_key_is_refused(acme: Company) -> None:
    facade.rotate_key(acme.owner, acme.tenant.key_id, grace_s=3600)

    with pytest.raises(AlreadyRotated):
        facade.rotate_key(acme.owner, acme.tenant.key_id, grace_s=0)
    assert works(acme.tenant.secret)


def test_rotating_the_successor_leaves_the_first_grace_alone(acme: Company) -> None:
    second = facade.rotate_key(acme.owner, acme.tenant.key_id, grace_s=3600)
    promised = shown(acme, acme.tenant.key_id).revoke_at

    third = facade.rotate_key(acme.owner, second.key_id, grace_s=0)

    assert shown(acme, acme.tenant.key_id).revoke_at == promised
    assert [works(one) for one in (acme.tenant.secret, second.secret, third.secret)] == [
        True,
        False,
        True,
    ]


def test_of_many_rotations_at_once_one_makes_a_successor(acme: Company) -> None:
    owner = acme.owner

    def rotate() -> bool:
        try:
            facade.rotate_key(owner, acme.tenant.key_id, grace_s=60)
        except AlreadyRotated:
            return False
        return True

    assert sum(at_once([rotate] * 12)) == 1
    assert len(facade.list_keys(owner, KeyKind.PROJECT)) == 2


@pytest.mark.parametrize("column", ["revoke_at", "replaced_by"])
def test_a_promised_end_does_not_move(acme: Company, column: str) -> None:
    facade.rotate_key(acme.owner, acme.tenant.key_id, grace_s=3600)

    with (
        pytest.raises(IntegrityError, match="does not move"),
        facade.tenant_scope(acme.tenant.organization_id),
        connections["default"].cursor() as cursor,
    ):
        cursor.execute(
            f"UPDATE tenants_api_key SET {column} = NULL WHERE id = %s", [acme.tenant.key_id]
        )


def test_a_key_in_its_grace_can_still_be_revoked(acme: Company) -> None:
    facade.rotate_key(acme.owner, acme.tenant.key_id, grace_s=3600)

    facade.revoke_key_as(acme.owner, acme.tenant.key_id)

    assert not works(acme.tenant.secret)


def test_a_dead_key_is_not_rotated_back_to_life(acme: Company) -> None:
    facade.revoke_key_as(acme.owner, acme.tenant.key_id)

    with pytest.raises(TenantConflict):
        facade.rotate_key(acme.owner, acme.tenant.key_id, grace_s=60)


@pytest.mark.parametrize("grace_s", [-1, 30 * 24 * 3600 + 1])
def test_a_grace_has_bounds(acme: Company, grace_s: int) -> None:
    with pytest.raises(InvalidValue, match="seconds"):
        facade.rotate_key(acme.owner, acme.tenant.key_id, grace_s=grace_s)


# --- imported keys ---


def imported(company: Company, secret: str) -> UUID | None:
    """The key brought over by its hash, as the importer does."""
    return facade.import_key(
        company.tenant.organization_id,
        company.tenant.project_id,
        replace(NARROW, name="from litellm"),
        hashlib.sha256(secret.encode()).digest(),
        f"sk-...{secret[-4:]}",
    )


def test_a_tenant_keeps_its_litellm_key(acme: Company) -> None:
    secret = f"sk-{uuid4().hex[:22]}"

    key_id = imported(acme, secret)

    identity = facade.authenticate(secret)
    assert identity.key_id == key_id
    assert identity.models == NARROW.models
    assert shown(acme, identity.key_id).last4 == secret[-4:]


def test_a_hash_is_imported_once_whoever_has_it(acme: Company, globex: Company) -> None:
    secret = f"sk-{uuid4().hex[:22]}"

    assert imported(acme, secret) is not None
    assert imported(acme, secret) is None
    assert imported(globex, secret) is None
    assert facade.authenticate(secret).organization_id == acme.tenant.organization_id


def test_an_imported_hash_is_no_key(acme: Company) -> None:
    secret = f"sk-{uuid4().hex[:22]}"
    imported(acme, secret)
    hashed = hashlib.sha256(secret.encode()).hexdigest()

    with pytest.raises(KeyMalformed):
        facade.authenticate(hashed)
    with pytest.raises(KeyRejected):
        facade.authenticate(f"sk-{hashed}")


def test_our_own_hashes_are_not_found_as_imported_ones(acme: Company) -> None:
    with pytest.raises(KeyRejected):
        facade.authenticate("sk-" + acme.tenant.secret.removeprefix("hr-"))


def test_an_imported_key_is_rotated_into_one_of_ours(acme: Company) -> None:
    secret = f"sk-{uuid4().hex[:22]}"
    key_id = imported(acme, secret)
    assert key_id is not None

    issued = facade.rotate_key(acme.owner, key_id, grace_s=3600)

    assert issued.secret.startswith("hr-")
    assert works(secret) and works(issued.secret)


# --- what else ends a key ---


def test_disabling_a_service_account_stops_its_keys_alone(acme: Company) -> None:
    project = acme.tenant.project_id
    account = facade.create_service_account(acme.owner, project, "ci")
    issued = facade.create_key(acme.owner, project, NARROW, account.service_account_id)
    assert facade.authenticate(issued.secret).key_id == issued.key_id

    facade.disable_service_account(acme.owner, account.service_account_id)

    assert not works(issued.secret)
    assert facade.revoked_among([issued.key_id, acme.tenant.key_id]) == {issued.key_id}
    assert facade.read_service_account(acme.owner, account.service_account_id).disabled_at
    with pytest.raises(TenantConflict):
        facade.create_key(acme.owner, project, NARROW, account.service_account_id)


def test_a_service_account_is_of_one_project_of_one_organization(
    acme: Company, globex: Company
) -> None:
    sibling = facade.open_project(acme.owner, "sibling").project_id
    account = facade.create_service_account(acme.owner, sibling, "ci").service_account_id

    touches: list[Callable[[], object]] = [
        lambda: facade.create_key(acme.owner, acme.tenant.project_id, NARROW, account),
        lambda: facade.read_service_account(globex.owner, account),
        lambda: facade.disable_service_account(globex.owner, account),
        lambda: facade.create_service_account(globex.owner, sibling, "ci"),
    ]
    for touch in touches:
        with pytest.raises(TenantObjectNotFound):
            touch()
    listed = facade.list_service_accounts(acme.owner, sibling)
    assert [one.service_account_id for one in listed] == [account]
    assert facade.list_service_accounts(acme.owner, acme.tenant.project_id) == []


def test_a_suspended_organization_looks_but_does_not_infer(django_database: object) -> None:
    buyer = make_buyer()
    actor = facade.operator_of(buyer.organization_id)
    admin = facade.create_admin_key(actor, "admin", frozenset({Permission.USAGE_READ}))

    facade.set_organization_status(buyer.organization_id, OrganizationStatus.SUSPENDED)

    with pytest.raises(OrganizationSuspended):
        facade.authenticate(buyer.secret)
    assert facade.authenticate(admin.secret).kind is KeyKind.ADMIN
    [outcome] = hold([buyer.request()])
    assert outcome.refusal is HoldRefusal.ORGANIZATION_SUSPENDED
    assert buyer.key_id in facade.revoked_among([buyer.key_id])

    facade.set_organization_status(buyer.organization_id, OrganizationStatus.ACTIVE)
    assert hold([buyer.request()])[0].refusal is None
