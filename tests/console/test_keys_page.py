"""Keys on pages: a secret is seen once, forms do what they say, and what is wrong is said."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from django.conf import settings

from headrace.tenant_console.keys.states import limits_text, models_text, state_of
from tenants import facade
from tenants.contracts import (
    NO_LIMITS,
    KeyInfo,
    KeyKind,
    KeyRejected,
    KeyScope,
    KeySettings,
    MinuteLimits,
    Permission,
    Role,
)
from tests.headrace.door import Door, member_of
from tests.tenants.cast import Tenant, make_tenant

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
SECRET = re.compile(r"hr-[0-9A-Za-z]{40,}")


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """The organization whose keys these are."""
    return make_tenant("acme")


@pytest.fixture
def owner(acme: Tenant) -> Door:
    """Its owner, who has just signed in."""
    return member_of(acme.organization_id, Role.OWNER)


def at(tenant: Tenant, path: str = "keys") -> str:
    return f"/console/{tenant.slug}/{path}"


def create(door: Door, tenant: Tenant, query: str = "", **fields: Any) -> httpx.Response:
    data = {"do": "create", "name": "new", "project_id": str(tenant.project_id), "scopes": ["chat"]}
    return door.post(at(tenant, f"keys/new{query}"), data=data | fields)


def secret_in(answer: httpx.Response) -> str:
    """The one secret that a page shows."""
    assert answer.status_code == 200, answer.text
    secrets: set[str] = set(SECRET.findall(answer.text))
    [secret] = secrets
    return secret


def newest(tenant: Tenant, kind: KeyKind = KeyKind.PROJECT) -> KeyInfo:
    return facade.list_keys(facade.operator_of(tenant.organization_id), kind, rows_max=1)[0]


def works(secret: str) -> bool:
    """Whether the secret opens the door."""
    try:
        facade.authenticate(secret)
    except KeyRejected:
        return False
    return True


def test_a_key_is_made_as_asked_and_its_secret_is_shown_once(acme: Tenant, owner: Door) -> None:
    answer = create(
        *(owner, acme),
        scopes=["chat", "models"],
        cidrs="10.0.0.0/8\n2001:db8::/32",
        expires_at="2100-01-01T00:00",
        limits_requests_max="10",
        end_user_limits_tokens_max="5",
    )
    secret = secret_in(answer)
    key = newest(acme)

    assert facade.authenticate(secret).key_id == key.key_id
    assert key.settings == KeySettings(
        name="new",
        scopes=frozenset({KeyScope.CHAT, KeyScope.MODELS}),
        cidrs=("10.0.0.0/8", "2001:db8::/32"),
        expires_at=datetime(2100, 1, 1, tzinfo=UTC),
        limits=MinuteLimits(requests_max=10),
        end_user_limits=MinuteLimits(tokens_max=5),
    )
    assert f"{settings.PUBLIC_URL}/v1/chat/completions" in answer.text
    assert answer.headers["cache-control"] == "no-store"
    for path in ("keys", f"keys/{key.key_id}", f"keys/{key.key_id}/edit"):
        assert not SECRET.search(owner.get(at(acme, path)).text)


def test_an_expiry_is_a_moment_in_the_organizations_zone(acme: Tenant, owner: Door) -> None:
    facade.update_organization(facade.operator_of(acme.organization_id), time_zone="Asia/Tokyo")
    create(owner, acme, expires_at="2100-01-01T09:00")

    assert newest(acme).settings.expires_at == datetime(2100, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": ""}, "name"),
        ({"project_id": str(uuid4())}, "project_id"),
        ({"scopes": ["everything"]}, "scopes"),
        ({"cidrs": "300.0.0.0/8"}, "cidrs"),
        ({"expires_at": "2001-01-01T00:00"}, "expires_at"),
        ({"limits_requests_max": "0"}, "limits_requests_max"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field(
    acme: Tenant, owner: Door, fields: dict[str, str], field: str
) -> None:
    before = newest(acme)
    answer = create(owner, acme, **fields)

    assert answer.status_code == 422
    assert f'id="id_{field}_error"' in answer.text
    assert newest(acme) == before


def test_a_key_of_a_program_belongs_to_its_account(acme: Tenant, owner: Door) -> None:
    accounts = at(acme, "keys/accounts")
    fields = {"name": "nightly", "project_id": str(acme.project_id)}
    assert owner.post(accounts, data={"do": "create", **fields}).status_code == 303
    [account] = facade.list_service_accounts(facade.operator_of(acme.organization_id))
    account_id = account.service_account_id
    made = create(owner, acme, service_account_id=str(account_id))
    disabled = owner.post(accounts, data={"do": "disable", "account_id": str(account_id)})

    assert newest(acme).service_account_id == account_id
    assert disabled.status_code == 303
    assert not works(secret_in(made))


def test_an_admin_key_may_do_what_was_ticked(acme: Tenant, owner: Door) -> None:
    permissions = ["usage.read", "members.read"]
    answer = create(owner, acme, "?kind=admin", permissions=permissions)
    key = newest(acme, KeyKind.ADMIN)

    assert facade.authenticate(secret_in(answer)).kind is KeyKind.ADMIN
    assert sorted(key.permissions) == sorted(map(Permission, permissions))
    assert key.settings.name in owner.get(at(acme, "keys?kind=admin")).text


def test_a_developer_makes_no_key_that_administers(acme: Tenant) -> None:
    developer = member_of(acme.organization_id, Role.DEVELOPER)

    assert create(developer, acme, "?kind=admin", permissions=["usage.read"]).status_code == 403
    assert "New admin key" not in developer.get(at(acme, "keys?kind=admin")).text


def test_an_edit_changes_what_was_changed_and_nothing_else(acme: Tenant, owner: Door) -> None:
    expires_at = datetime(2100, 1, 1, 12, 30, 45, tzinfo=UTC)
    given = KeySettings("old", models=frozenset({"small"}), expires_at=expires_at)
    operator = facade.operator_of(acme.organization_id)
    key_id = facade.create_key(operator, acme.project_id, given).key_id
    page = owner.get(at(acme, f"keys/{key_id}/edit")).text
    fields = {
        "do": "save",
        "name": "renamed",
        "models": "small",
        "scopes": [scope.value for scope in KeyScope],
        "expires_at": "2100-01-01T12:30",
    }
    answer = owner.post(at(acme, f"keys/{key_id}/edit"), data=fields)
    key = facade.read_key(operator, key_id)

    assert 'value="2100-01-01T12:30"' in page
    assert answer.status_code == 303
    assert key.settings == KeySettings(
        "renamed", models=frozenset({"small"}), expires_at=expires_at
    )


def test_a_rotated_key_counts_down_beside_its_successor(acme: Tenant, owner: Door) -> None:
    answer = owner.post(
        at(acme, f"keys/{acme.key_id}/rotate"), data={"do": "rotate", "grace_s": "3600"}
    )
    listed = owner.get(at(acme)).text

    assert works(secret_in(answer))
    assert works(acme.secret)
    assert "rotating" in listed
    assert "stops" in listed
    assert str(newest(acme).key_id) in owner.get(at(acme, f"keys/{acme.key_id}")).text


def test_a_key_is_revoked_by_its_name_and_stops(acme: Tenant, owner: Door) -> None:
    path = at(acme, f"keys/{acme.key_id}")
    wrong = owner.post(path, data={"do": "revoke", "confirm": "another"})
    still = works(acme.secret)
    right = owner.post(path, data={"do": "revoke", "confirm": "test"})

    assert (wrong.status_code, still) == (422, True)
    assert "confirm_confirm_error" in wrong.text
    assert right.status_code == 303
    assert not works(acme.secret)
    assert str(acme.key_id) not in owner.get(at(acme)).text
    assert str(acme.key_id) in owner.get(at(acme, "keys?revoked=1")).text


def test_the_list_is_of_the_project_that_the_address_names(acme: Tenant, owner: Door) -> None:
    operator = facade.operator_of(acme.organization_id)
    other = facade.open_project(operator, "other").project_id
    key_id = facade.create_key(operator, other, KeySettings("elsewhere")).key_id
    listed = owner.get(at(acme, f"keys?project={other}")).text

    assert f"keys/{key_id}" in listed
    assert f"keys/{acme.key_id}" not in listed
    assert owner.get(at(acme, f"keys?project={uuid4()}")).status_code == 404


def test_an_empty_list_shows_the_first_request(acme: Tenant) -> None:
    bare = facade.create_organization(f"bare-{uuid4().hex[:12]}", "Bare")
    page = member_of(bare.organization_id, Role.OWNER).get(f"/console/{bare.slug}/keys").text

    assert f"curl {settings.PUBLIC_URL}/v1/chat/completions" in page


def test_a_viewer_sees_keys_and_no_buttons(acme: Tenant) -> None:
    viewer = member_of(acme.organization_id, Role.VIEWER)
    page = viewer.get(at(acme, f"keys/{acme.key_id}"))

    assert page.status_code == 200
    assert f"usage?key={acme.key_id}" in page.text
    assert "Revoke" not in page.text
    assert "New key" not in viewer.get(at(acme)).text


def key(**given: Any) -> KeyInfo:
    settings = KeySettings("k", expires_at=given.pop("expires_at", None))
    fields: dict[str, Any] = {
        "last_used_at": None,
        "revoked_at": None,
        "revoke_at": None,
        "replaced_by": None,
    }
    return KeyInfo(
        *(UUID(int=1), KeyKind.PROJECT, UUID(int=2), None, None, "hr-a", "wxyz"),
        settings=settings,
        permissions=frozenset(),
        created_at=NOW,
        **(fields | given),
    )


@pytest.mark.parametrize(
    ("given", "word", "works_now"),
    [
        ({}, "active", True),
        ({"expires_at": NOW + timedelta(days=3)}, "expires", True),
        ({"expires_at": NOW}, "expired", False),
        ({"revoke_at": NOW + timedelta(hours=1)}, "rotating", True),
        ({"revoke_at": NOW}, "rotated out", False),
        ({"revoked_at": NOW, "revoke_at": NOW + timedelta(hours=1)}, "revoked", False),
    ],
)
def test_a_key_is_in_one_state(given: dict[str, Any], word: str, works_now: bool) -> None:
    state = state_of(key(**given), NOW)

    assert (state.word, state.works) == (word, works_now)


def test_the_key_of_an_archived_project_does_not_work() -> None:
    assert state_of(key(), NOW, {UUID(int=2)}).word == "project archived"


def test_what_binds_a_key_is_short_to_read() -> None:
    assert limits_text(NO_LIMITS) == "none of its own"
    assert limits_text(MinuteLimits(10, 12_345)) == "10 req/min, 12.3k tok/min"
    assert models_text(None) == "all"
    assert models_text({"c", "b", "a"}) == "a, b and 1 more"
