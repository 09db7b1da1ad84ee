"""A key ends when it was said to, whoever ends it, and imported ones live on as they are."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connections

from billing.contracts import HoldRefusal
from billing.facade import hold
from tenants import facade
from tenants.contracts import (
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
