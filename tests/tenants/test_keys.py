"""An API key is checked offline first, found by its hash only, and refused in one voice."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connections
from hypothesis import example, given
from hypothesis import strategies as st

from tenants import facade
from tenants.contracts import (
    KeyMalformed,
    KeyRefusal,
    KeyRejected,
    OrganizationStatus,
    ProjectArchived,
)
from tenants.keys import secrets as keys
from tenants.models import ApiKey
from tests.tenants.cast import Tenant, make_tenant


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """The tenant whose keys these are."""
    return make_tenant("acme")


def test_a_key_speaks_for_its_project_and_organization(acme: Tenant) -> None:
    issued = facade.issue_key(acme.organization_id, acme.project_id, "laptop")

    identity = facade.authenticate(issued.secret)

    assert identity.key_id == issued.key_id
    assert identity.project_id == acme.project_id
    assert identity.organization_id == acme.organization_id
    assert (identity.organization_slug, identity.currency) == (acme.slug, "USD")
    assert identity.requests_per_minute_max == 600
    assert identity.expires_at is None


def test_only_the_hash_of_a_key_is_stored(acme: Tenant) -> None:
    issued = facade.issue_key(acme.organization_id, acme.project_id, "laptop")

    with facade.tenant_scope(acme.organization_id):
        row = ApiKey.objects.values().get(id=issued.key_id)

    body = issued.secret.removeprefix("hr-")
    assert bytes(row["secret_hash"]) == keys.hash_secret(issued.secret)
    assert all(body not in str(value) for value in row.values())
    assert issued.secret.startswith(issued.prefix)
    assert (row["prefix"], row["last4"]) == (issued.prefix, issued.secret[-4:])


def test_keys_do_not_repeat_and_pass_their_own_check() -> None:
    made = {keys.new_secret() for _ in range(200)}

    for secret in made:
        keys.check_format(secret)
    assert len(made) == 200
    assert all(re.fullmatch(r"hr-[0-9A-Za-z]{49}", secret) for secret in made)


GARBAGE: list[Callable[[str], str]] = [
    lambda secret: "",
    lambda secret: "hr-",
    lambda secret: secret[:-1],
    lambda secret: secret + "0",
    lambda secret: secret + "\n",
    lambda secret: secret[:20] + "\0" + secret[21:],
    lambda secret: secret[:20] + "'" + secret[21:],
    lambda secret: secret[:20] + "\u00e9" + secret[21:],
    lambda secret: "' OR '1'='1' --",
    lambda secret: "sk-short",
    lambda secret: "sk-" + "a" * 254,
    lambda secret: "sk-' OR 1=1 --",
    lambda secret: secret * 200,
    lambda secret: secret[:10] + ("b" if secret[10] != "b" else "c") + secret[11:],
    lambda secret: secret.swapcase(),
    lambda secret: keys.hash_secret(secret).hex(),
]


@contextmanager
def statements() -> Iterator[list[str]]:
    """Every statement that this thread sends as role app."""
    asked: list[str] = []

    def note(execute: Callable[..., object], sql: str, *rest: object) -> object:
        asked.append(sql)
        return execute(sql, *rest)

    with connections["default"].execute_wrapper(note):
        yield asked


@pytest.mark.parametrize("spoil", GARBAGE)
def test_what_is_no_key_is_refused_without_a_look_up(
    django_database: object, spoil: Callable[[str], str]
) -> None:
    with statements() as asked, pytest.raises(KeyMalformed):
        facade.authenticate(spoil(keys.new_secret()))

    assert asked == []


@given(st.text(max_size=80))
@example("hr-" + "0" * 49)
def test_no_text_found_by_chance_is_a_key(text: str) -> None:
    with pytest.raises(KeyMalformed):
        keys.check_format(text)


def test_the_stored_hash_is_no_key_even_in_a_keys_clothes(acme: Tenant) -> None:
    number = int.from_bytes(keys.hash_secret(acme.secret), "big")
    unchecked = "hr-" + keys._base62(number, keys.BODY_LENGTH)
    dressed = unchecked + keys._checksum(unchecked)

    keys.check_format(dressed)
    with pytest.raises(KeyRejected):
        facade.authenticate(dressed)


def test_unknown_revoked_and_expired_keys_are_refused_alike(acme: Tenant) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    revoked = facade.issue_key(acme.organization_id, acme.project_id, "revoked")
    facade.revoke_key(acme.organization_id, revoked.key_id)
    expired = facade.issue_key(acme.organization_id, acme.project_id, "expired", expires_at=past)

    said = set()
    for secret in (keys.new_secret(), revoked.secret, expired.secret):
        with pytest.raises(KeyRejected) as refusal:
            facade.authenticate(secret)
        said.add((type(refusal.value), str(refusal.value)))

    assert len(said) == 1


def test_a_key_of_an_archived_project_is_known_and_refused(acme: Tenant) -> None:
    closed_project = facade.create_project(acme.organization_id, "closed")
    archived = facade.issue_key(acme.organization_id, closed_project, "archived")
    facade.archive_project(acme.organization_id, closed_project)

    with pytest.raises(ProjectArchived):
        facade.authenticate(archived.secret)


def test_a_key_works_until_it_expires(acme: Tenant) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)

    issued = facade.issue_key(acme.organization_id, acme.project_id, "brief", expires_at=soon)

    assert facade.authenticate(issued.secret).expires_at == soon


def test_the_poll_names_every_key_that_may_not_go_on(acme: Tenant) -> None:
    globex = make_tenant("globex")
    past = datetime.now(UTC) - timedelta(seconds=1)
    revoked = facade.issue_key(acme.organization_id, acme.project_id, "revoked").key_id
    facade.revoke_key(acme.organization_id, revoked)
    expired = facade.issue_key(acme.organization_id, acme.project_id, "old", past).key_id
    unknown = uuid4()

    gone = facade.revoked_among([acme.key_id, globex.key_id, revoked, expired, unknown])

    assert gone == {revoked, expired, unknown}
    assert facade.revoked_among([]) == frozenset()


def test_an_archived_project_ends_its_keys_streams(acme: Tenant) -> None:
    facade.archive_project(acme.organization_id, acme.project_id)

    assert facade.revoked_among([acme.key_id]) == {acme.key_id}


def test_a_worker_is_told_why_a_key_may_not_go_on(acme: Tenant) -> None:
    globex, initech = make_tenant("globex"), make_tenant("initech")
    past = datetime.now(UTC) - timedelta(seconds=1)
    expired = facade.issue_key(acme.organization_id, acme.project_id, "old", past).key_id
    revoked = facade.issue_key(acme.organization_id, acme.project_id, "revoked").key_id
    facade.revoke_key(acme.organization_id, revoked)
    facade.archive_project(globex.organization_id, globex.project_id)
    facade.set_organization_status(initech.organization_id, OrganizationStatus.SUSPENDED)

    def refusal(tenant: Tenant, key_id: UUID) -> KeyRefusal | None:
        return facade.key_refusal(tenant.organization_id, tenant.project_id, key_id)

    assert refusal(acme, acme.key_id) is None
    assert refusal(acme, expired) is KeyRefusal.KEY_REVOKED
    assert refusal(acme, revoked) is KeyRefusal.KEY_REVOKED
    assert refusal(acme, globex.key_id) is KeyRefusal.KEY_REVOKED, "another's is none of acme's"
    assert refusal(globex, globex.key_id) is KeyRefusal.PROJECT_ARCHIVED
    assert refusal(initech, initech.key_id) is KeyRefusal.ORGANIZATION_SUSPENDED


def test_a_tenant_revokes_its_own_keys_only(acme: Tenant) -> None:
    globex = make_tenant("globex")

    facade.revoke_key(globex.organization_id, acme.key_id)

    assert facade.authenticate(acme.secret).key_id == acme.key_id


def test_revoking_again_keeps_the_first_time(acme: Tenant) -> None:
    def revoked_at() -> datetime | None:
        with facade.tenant_scope(acme.organization_id):
            return ApiKey.objects.get(id=acme.key_id).revoked_at

    facade.revoke_key(acme.organization_id, acme.key_id)
    first = revoked_at()
    facade.revoke_key(acme.organization_id, acme.key_id)

    assert first is not None
    assert revoked_at() == first


@pytest.mark.parametrize("alias", ["default", "housekeeper"])
@pytest.mark.parametrize("moment", [None, datetime(2100, 1, 1, tzinfo=UTC)])
def test_a_revocation_is_for_good(acme: Tenant, alias: str, moment: datetime | None) -> None:
    facade.revoke_key(acme.organization_id, acme.key_id)

    with (
        pytest.raises(IntegrityError, match="stays revoked"),
        facade.tenant_scope(acme.organization_id, alias),
    ):
        ApiKey.objects.using(alias).filter(id=acme.key_id).update(revoked_at=moment)
    with pytest.raises(KeyRejected):
        facade.authenticate(acme.secret)


def test_a_revoked_key_may_still_be_renamed(acme: Tenant) -> None:
    facade.revoke_key(acme.organization_id, acme.key_id)

    with facade.tenant_scope(acme.organization_id):
        renamed = ApiKey.objects.filter(id=acme.key_id).update(name="the lost laptop's")

    assert renamed == 1


def test_a_key_belongs_to_a_project_of_its_own_organization(acme: Tenant) -> None:
    globex = make_tenant("globex")

    with pytest.raises(IntegrityError, match="tenants_key_in_its_project"):
        facade.issue_key(acme.organization_id, globex.project_id, "stray")


def test_use_is_noted_coarsely(acme: Tenant) -> None:
    def used_at() -> datetime | None:
        with facade.tenant_scope(acme.organization_id):
            return ApiKey.objects.get(id=acme.key_id).last_used_at

    assert used_at() is None
    facade.authenticate(acme.secret)
    first = used_at()
    facade.authenticate(acme.secret)

    assert first is not None
    assert used_at() == first


def test_a_tenant_is_found_by_its_slug(acme: Tenant) -> None:
    found = facade.organization_by_slug(acme.slug)

    assert found is not None and found.organization_id == acme.organization_id
    assert facade.organization_by_slug("' OR 1=1") is None


def test_a_slug_is_taken_once(acme: Tenant) -> None:
    with pytest.raises(IntegrityError):
        facade.create_organization(acme.slug, "again")


def test_a_look_up_costs_one_statement(acme: Tenant) -> None:
    with statements() as asked:
        facade.authenticate(acme.secret)

    assert len(asked) == 1


def test_an_unknown_key_id_is_not_an_error(acme: Tenant) -> None:
    facade.revoke_key(acme.organization_id, UUID(int=0))

    assert facade.authenticate(acme.secret).key_id == acme.key_id
