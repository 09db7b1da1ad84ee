"""Who comes in: a cache ends with its key, networks are held to, guesses stop being looked up."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from django.db import connections
from django.test import override_settings

from headrace.client_address import parse_networks
from headrace.errors import ApiError
from headrace.gateway.admission.auth import authenticate, cache_salt, identify
from headrace.gateway.admission.failed_lookups import ADDRESSES_MAX, PROVEN_MAX, FailedLookups
from tenants import facade
from tenants.contracts import KeyIdentity, KeyScope, KeySettings, OrganizationStatus, Permission
from tenants.keys.secrets import new_secret
from tests.headrace.door import admin_key
from tests.tenants.cast import Tenant, make_tenant

HERE = "192.0.2.7"


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """The tenant whose keys these are."""
    return make_tenant("acme")


def come(
    secret: str,
    needed: KeyScope | None = None,
    peer: str | None = HERE,
    forwarded: Sequence[str] = (),
) -> KeyIdentity:
    """A request with this key, as the token routes are told of it."""
    headers = [(b"authorization", f"Bearer {secret}".encode())]
    headers += [(b"x-forwarded-for", value.encode()) for value in forwarded]
    scope = {"headers": headers, "client": None if peer is None else (peer, 1234)}
    return asyncio.run(identify(scope, needed))


def refusal(ask: Callable[[], object]) -> tuple[int, str | None]:
    with pytest.raises(ApiError) as refused:
        ask()
    return refused.value.status, refused.value.code


FORBIDDEN = (403, "insufficient_permissions")
UNKNOWN = (401, "invalid_api_key")


def key_of(tenant: Tenant, settings: KeySettings) -> str:
    """A key with these settings."""
    actor = facade.operator_of(tenant.organization_id)
    return facade.create_key(actor, tenant.project_id, settings).secret


def test_a_remembered_key_is_refused_from_the_instant_it_ends(acme: Tenant) -> None:
    ends_at = datetime.now(UTC) + timedelta(milliseconds=400)
    secret = facade.issue_key(acme.organization_id, acme.project_id, "brief", ends_at).secret

    uses = 0
    while datetime.now(UTC) < ends_at - timedelta(milliseconds=100):
        assert come(secret).expires_at == ends_at
        uses += 1
    while datetime.now(UTC) < ends_at:
        pass

    assert uses > 1
    assert refusal(lambda: come(secret)) == UNKNOWN


def test_a_grace_bounds_what_is_remembered_of_the_old_key(acme: Tenant) -> None:
    actor = facade.operator_of(acme.organization_id)
    facade.rotate_key(actor, acme.key_id, grace_s=3600)

    ends_at = come(acme.secret).expires_at

    assert ends_at is not None
    assert ends_at - datetime.now(UTC) < timedelta(hours=1)


@pytest.mark.parametrize("scope", KeyScope)
def test_a_key_opens_what_it_has_the_scope_for(acme: Tenant, scope: KeyScope) -> None:
    only = key_of(acme, KeySettings("only", scopes=frozenset({scope})))
    others = key_of(acme, KeySettings("others", scopes=frozenset(KeyScope) - {scope}))

    assert come(only, scope).scopes == {scope}
    assert refusal(lambda: come(others, scope)) == FORBIDDEN


def test_an_admin_key_infers_nothing(acme: Tenant) -> None:
    secret = admin_key(acme.organization_id, *Permission)

    for needed in (None, KeyScope.CHAT, KeyScope.MODELS):
        assert refusal(lambda: come(secret, needed)) == FORBIDDEN  # noqa: B023


INSIDE = ["10.1.2.3", "192.0.2.7", "::ffff:10.1.2.3", "2001:db8::1"]
OUTSIDE = ["11.0.0.1", "192.0.2.8", "2001:db9::1", "::ffff:11.0.0.1", "fe80::1", None, "@socket"]
NETWORKS = ("10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32")


def test_a_key_is_held_to_its_networks(acme: Tenant) -> None:
    secret = key_of(acme, KeySettings("office", cidrs=NETWORKS))

    for inside in INSIDE:
        assert come(secret, peer=inside).cidrs
    for outside in OUTSIDE:
        assert refusal(lambda: come(secret, peer=outside)) == FORBIDDEN  # noqa: B023
        assert refusal(lambda: authenticate(secret, outside or "")) == FORBIDDEN  # noqa: B023


def test_only_trusted_proxies_say_where_a_request_came_from(acme: Tenant) -> None:
    secret = key_of(acme, KeySettings("office", cidrs=NETWORKS))

    assert refusal(lambda: come(secret, peer="203.0.113.1", forwarded=["10.0.0.1"])) == FORBIDDEN
    with override_settings(TRUSTED_PROXIES=parse_networks(["203.0.113.0/24"])):
        assert come(secret, peer="203.0.113.1", forwarded=["8.8.8.8", "10.0.0.1"])
        spoofed = ["10.0.0.1", "8.8.8.8"]
        assert refusal(lambda: come(secret, peer="203.0.113.1", forwarded=spoofed)) == FORBIDDEN


def test_a_suspended_organization_is_told_so_and_a_closed_one_too(acme: Tenant) -> None:
    for status in (OrganizationStatus.SUSPENDED, OrganizationStatus.CLOSED):
        facade.set_organization_status(acme.organization_id, status)

        assert refusal(lambda: come(acme.secret)) == FORBIDDEN


@contextmanager
def look_ups() -> Iterator[list[str]]:
    """Statements that this thread sends as role app."""
    asked: list[str] = []

    def note(execute: Callable[..., object], sql: str, *rest: object) -> object:
        asked.append(sql)
        return execute(sql, *rest)

    with connections["default"].execute_wrapper(note):
        yield asked


GUESSES = settings.FAILED_LOOKUPS_PER_MINUTE_MAX


def guess_from(peer: str) -> None:
    """As many different unknown keys as an address may show in a minute."""
    for _ in range(GUESSES):
        assert refusal(lambda: authenticate(new_secret(), peer)) == UNKNOWN


def test_an_address_with_too_many_unknown_keys_is_not_looked_up_for(acme: Tenant) -> None:
    peer, other = "198.51.100.77", "198.51.100.78"
    guess_from(peer)

    with look_ups() as asked, pytest.raises(ApiError) as refused:
        authenticate(acme.secret, peer)

    assert (refused.value.status, refused.value.code) == (429, "rate_limit_exceeded")
    assert 0 < (refused.value.retry_after_s or 0) <= 60
    assert asked == []
    assert authenticate(acme.secret, other).key_id == acme.key_id


def test_a_key_that_has_worked_is_never_held_up_by_guesses_from_its_address(acme: Tenant) -> None:
    peer, brief = "198.51.100.99", make_tenant("brief")
    authenticate(acme.secret, peer)
    come(brief.secret, peer=peer)

    guess_from(peer)

    assert authenticate(acme.secret, peer).key_id == acme.key_id
    facade.revoke_key(brief.organization_id, brief.key_id)
    assert refusal(lambda: authenticate(brief.secret, peer)) == UNKNOWN


def test_a_program_that_repeats_a_dead_key_troubles_nobody_else(acme: Tenant) -> None:
    peer, dead = "198.51.100.66", new_secret()
    for _ in range(GUESSES + 1):
        assert refusal(lambda: authenticate(dead, peer)) == UNKNOWN

    assert authenticate(acme.secret, peer).key_id == acme.key_id


def test_what_is_no_key_is_not_counted(acme: Tenant) -> None:
    for number in range(GUESSES + 1):
        assert refusal(lambda: authenticate(f"hr-{number}", "198.51.100.55")) == UNKNOWN  # noqa: B023

    assert authenticate(acme.secret, "198.51.100.55").key_id == acme.key_id


class Clock:
    """A clock that goes when told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


NEW = b"new"


def may(failures: FailedLookups, address: str, digest: bytes = NEW) -> bool:
    try:
        failures.check(address, digest)
    except ApiError:
        return False
    return True


def test_failures_are_forgotten_after_their_minute() -> None:
    clock = Clock()
    failures = FailedLookups(2, clock)
    failures.failed("192.0.2.1", b"one")
    clock.now += 59
    failures.failed("192.0.2.1", b"two")
    assert not may(failures, "192.0.2.1")

    clock.now += 2
    assert may(failures, "192.0.2.1")
    failures.failed("192.0.2.1", b"three")
    assert may(failures, "192.0.2.1")


def test_a_subscribers_ipv6_addresses_count_together() -> None:
    failures = FailedLookups(2, Clock())
    failures.failed("2001:db8:0:1::1", b"one")
    failures.failed("2001:db8:0:1:ffff::2", b"two")

    assert not may(failures, "2001:db8:0:1::3")
    assert may(failures, "2001:db8:0:2::1")


def test_the_memory_of_failures_is_bounded() -> None:
    failures = FailedLookups(1, Clock())
    for number in range(ADDRESSES_MAX + 10):
        failures.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", b"one")
    for number in range(PROVEN_MAX + 1):
        failures.worked(str(number).encode())
    last = f"10.0.{ADDRESSES_MAX >> 8}.{ADDRESSES_MAX & 255}"

    assert (len(failures._unknown), len(failures._proven)) == (ADDRESSES_MAX, PROVEN_MAX)
    assert may(failures, "10.0.0.0")
    assert not may(failures, last)
    assert [may(failures, last, digest) for digest in (b"0", b"1")] == [False, True]


def test_a_projects_cache_is_its_own_where_the_organization_says_so(acme: Tenant) -> None:
    actor = facade.operator_of(acme.organization_id)
    before = come(acme.secret).rules
    facade.update_organization(actor, cache_per_project=True)
    rules = facade.key_rules(acme.organization_id, acme.key_id)

    organization, project = str(acme.organization_id), str(acme.project_id)
    salts = {cache_salt(organization), cache_salt(organization, project), cache_salt(project)}
    assert len(salts) == 3
    assert (before.cache_per_project, rules.cache_per_project) == (False, True)


def test_bulk_work_is_held_to_its_keys_models(acme: Tenant) -> None:
    narrow = KeySettings("narrow", models=frozenset({"small"}))
    actor = facade.operator_of(acme.organization_id)
    issued = facade.create_key(actor, acme.project_id, narrow)

    rules = facade.key_rules(acme.organization_id, issued.key_id)

    assert (rules.allow("small"), rules.allow("large")) == (True, False)
    assert facade.key_rules(acme.organization_id, acme.key_id).allow("large")
    stranger = make_tenant("globex")
    assert not facade.key_rules(stranger.organization_id, acme.key_id).allow("small")
