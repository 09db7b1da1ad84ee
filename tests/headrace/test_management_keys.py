"""Keys over HTTP: what is asked is echoed and in force, and a secret is seen once."""

import json
from typing import Any
from uuid import uuid4

import pytest

from tenants import facade
from tenants.contracts import KeyKind, KeyRejected, Permission, Role
from tests.headrace.door import Door, admin_key, member_of
from tests.tenants.cast import Tenant, make_tenant

Json = dict[str, Any]
NO_LIMIT = {
    "requests_max": None,
    "tokens_max": None,
    "input_tokens_max": None,
    "output_tokens_max": None,
    "concurrent_max": None,
}
SETTINGS: Json = {
    "name": "narrow",
    "scopes": ["chat", "models"],
    "models": ["small", "vendor/large:1"],
    "cidrs": ["10.0.0.0/8", "2001:db8::/32"],
    "expires_at": "2100-01-01T00:00:00+00:00",
    "limits": {**NO_LIMIT, "requests_max": 10},
    "end_user_limits": {**NO_LIMIT, "tokens_max": 5},
}


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """The organization whose keys these are."""
    return make_tenant("acme")


@pytest.fixture
def owner(acme: Tenant) -> Door:
    """Its owner, who has just signed in."""
    return member_of(acme.organization_id, Role.OWNER)


def at(tenant: Tenant, path: str = "keys") -> str:
    return f"/api/v1/organizations/{tenant.organization_id}/{path}"


def make(door: Door, tenant: Tenant, **body: Any) -> Json:
    """A new key of the tenant's project, as it was answered."""
    answer = door.post(at(tenant), json={"project_id": str(tenant.project_id), **body})
    assert answer.status_code == 201, answer.text
    made: Json = answer.json()
    return made


def works(secret: str) -> bool:
    """Whether the secret opens the door."""
    try:
        facade.authenticate(secret)
    except KeyRejected:
        return False
    return True


def param_of(answer: Any) -> tuple[int, str | None]:
    return answer.status_code, answer.json()["error"]["param"]


def test_what_was_asked_is_echoed_read_again_and_in_force(acme: Tenant, owner: Door) -> None:
    made = make(owner, acme, **SETTINGS)
    read = owner.get(at(acme, f"keys/{made['id']}")).json()
    identity = facade.authenticate(made["key"])

    assert {name: made[name] for name in SETTINGS} == SETTINGS
    assert read == {name: value for name, value in made.items() if name != "key"} | {
        "last_used_at": read["last_used_at"]
    }
    assert identity.scopes == set(SETTINGS["scopes"])
    assert identity.models == frozenset(SETTINGS["models"])
    assert identity.key_limits.requests_max == 10
    assert identity.end_user_limits.tokens_max == 5


def test_a_secret_is_in_no_other_answer(acme: Tenant, owner: Door) -> None:
    made = make(owner, acme, name="once")
    key_id = made["id"]

    answers = [
        owner.get(at(acme)),
        owner.get(at(acme, f"keys/{key_id}")),
        owner.patch(at(acme, f"keys/{key_id}"), json={"name": "twice"}),
        owner.get(at(acme, "audit_log")),
        owner.post(at(acme, f"keys/{key_id}/revoke")),
    ]

    for answer in answers:
        assert answer.status_code == 200
        assert made["key"][9:-4] not in answer.text
        assert "hash" not in answer.text.replace("audit_log", "")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"name": "x", "budget": 5}, "budget"),
        ({"name": "x", "limits": {"requests_max": 1, "per_hour": 1}}, "limits.per_hour"),
        ({"name": "x", "limits": {"requests_max": 0}}, "limits.requests_max"),
        ({"name": "x", "limits": {"requests_max": 1.5}}, "limits.requests_max"),
        ({"name": "x", "scopes": ["everything"]}, "scopes.0"),
        ({"name": "x", "scopes": []}, "scopes"),
        ({"name": "x", "cidrs": ["10.0.0.1/8"]}, "cidrs"),
        ({"name": "x", "expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({"name": "x", "permissions": ["keys.read"]}, "permissions"),
        ({"name": ""}, "name"),
        ({}, "name"),
        ({"name": "x", "revoked_at": None}, "revoked_at"),
        ({"name": "x", "secret_hash": "00"}, "secret_hash"),
    ],
)
def test_nothing_is_accepted_and_dropped(acme: Tenant, owner: Door, body: Json, param: str) -> None:
    answer = owner.post(at(acme), json={"project_id": str(acme.project_id), **body})

    assert param_of(answer) == (400, param)
    assert len(owner.get(at(acme)).json()["data"]) == 1


def test_a_change_keeps_what_it_does_not_name(acme: Tenant, owner: Door) -> None:
    made = make(owner, acme, **SETTINGS)

    changed = owner.patch(at(acme, f"keys/{made['id']}"), json={"cidrs": [], "models": None})

    assert changed.status_code == 200
    expected = {**SETTINGS, "cidrs": [], "models": None}
    assert {name: changed.json()[name] for name in SETTINGS} == expected


def test_a_key_is_rotated_with_grace_and_then_only_its_successor(acme: Tenant, owner: Door) -> None:
    made = make(owner, acme, **SETTINGS)

    rotated = owner.post(at(acme, f"keys/{made['id']}/rotate"), json={"grace_s": 600})
    again = owner.post(at(acme, f"keys/{made['id']}/rotate"), json={})

    assert rotated.status_code == 201
    assert {name: rotated.json()[name] for name in SETTINGS} == SETTINGS
    assert works(made["key"]) and works(rotated.json()["key"])
    old = owner.get(at(acme, f"keys/{made['id']}")).json()
    assert old["replaced_by"] == rotated.json()["id"]
    assert old["revoke_at"] is not None
    assert (again.status_code, again.json()["error"]["code"]) == (409, "conflict")


def test_a_revoked_key_stays_on_the_list_and_works_no_more(acme: Tenant, owner: Door) -> None:
    answer = owner.post(at(acme, f"keys/{acme.key_id}/revoke"))
    again = owner.post(at(acme, f"keys/{acme.key_id}/revoke"))

    assert answer.json()["revoked_at"] == again.json()["revoked_at"] is not None
    assert not works(acme.secret)
    assert [key["id"] for key in owner.get(at(acme)).json()["data"]] == [str(acme.key_id)]


def test_who_signed_in_long_ago_must_prove_it_again_before_making_a_key(acme: Tenant) -> None:
    stale = member_of(acme.organization_id, Role.OWNER, seconds_ago=24 * 3600)
    body = {"name": "x", "project_id": str(acme.project_id)}

    assert stale.get(at(acme)).status_code == 200
    for path, sent in (("keys", body), (f"keys/{acme.key_id}/rotate", {})):
        answer = stale.post(at(acme, path), json=sent)
        assert answer.status_code == 403
        assert "key" not in answer.json()
    assert len(stale.get(at(acme)).json()["data"]) == 1


def test_an_admin_key_is_made_by_owners_and_never_of_more_rights(acme: Tenant) -> None:
    admin = member_of(acme.organization_id, Role.ADMIN)
    developer = member_of(acme.organization_id, Role.DEVELOPER)
    body = {"name": "terraform", "kind": "admin", "permissions": ["projects.write"]}

    made = admin.post(at(acme), json=body)
    above = admin.post(at(acme), json={**body, "permissions": ["organization.delete"]})
    beside = developer.post(at(acme), json={**body, "permissions": ["keys.read"]})
    mixed = admin.post(at(acme), json={**body, "scopes": ["chat"]})

    assert made.status_code == 201
    assert (above.status_code, beside.status_code) == (403, 403)
    assert param_of(mixed) == (400, "scopes")
    key = Door(made.json()["key"])
    assert key.post(at(acme, "projects"), json={"name": "lab"}).status_code == 201
    assert key.get(at(acme, "members")).status_code == 403
    kinds = [one["kind"] for one in admin.get(at(acme) + "?kind=admin").json()["data"]]
    assert kinds == [KeyKind.ADMIN]


def test_an_admin_key_of_a_member_who_left_opens_nothing(acme: Tenant, owner: Door) -> None:
    admin = member_of(acme.organization_id, Role.ADMIN)
    body = {"name": "mine", "kind": "admin", "permissions": ["projects.read"]}
    secret = admin.post(at(acme), json=body).json()["key"]
    [user_id] = [
        one["id"]
        for one in owner.get(at(acme, "members")).json()["data"]
        if one["role"] == Role.ADMIN
    ]
    assert Door(secret).get(at(acme, "projects")).status_code == 200

    assert owner.delete(at(acme, f"members/{user_id}")).status_code == 204

    assert Door(secret).get(at(acme, "projects")).status_code == 401
    assert admin.get(at(acme, "projects")).status_code == 404


@pytest.mark.parametrize("name", ["scopes", "models", "limits", "end_user_limits"])
def test_what_an_admin_key_has_not_cannot_be_changed(acme: Tenant, owner: Door, name: str) -> None:
    admin_key(acme.organization_id, Permission.PROJECTS_READ)
    [key] = facade.list_keys(facade.operator_of(acme.organization_id), KeyKind.ADMIN)

    answer = owner.patch(at(acme, f"keys/{key.key_id}"), json={name: SETTINGS[name]})

    assert answer.status_code == 400


def test_a_key_may_be_used_from_its_networks_alone(acme: Tenant, owner: Door) -> None:
    secret = admin_key(acme.organization_id, Permission.PROJECTS_READ)
    [key] = facade.list_keys(facade.operator_of(acme.organization_id), KeyKind.ADMIN)
    door = Door(secret)
    assert door.get(at(acme, "projects")).status_code == 200

    changed = owner.patch(at(acme, f"keys/{key.key_id}"), json={"cidrs": ["192.0.2.0/24"]})

    assert changed.json()["cidrs"] == ["192.0.2.0/24"]
    refused = door.get(at(acme, "projects"))
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "insufficient_permissions"
    # Nobody is trusted to say where a request came from, so this is only a claim.
    claimed = door.get(at(acme, "projects"), headers={"x-forwarded-for": "192.0.2.1"})
    assert claimed.status_code == 403


def test_an_invited_person_joins_by_the_token_of_the_mail(acme: Tenant, owner: Door) -> None:
    address = f"{uuid4().hex[:12]}@example.com"
    issued = owner.post(at(acme, "invitations"), json={"email": address, "role": "developer"})
    from tests.headrace.signing_in import mails_to, sign_in, sign_up

    person = sign_up(address)
    sign_in(person, address)
    token = issued.json()["token"]

    accepted = person.post("/api/v1/invitations/accept", json={"token": token})
    again = person.post("/api/v1/invitations/accept", json={"token": token})

    assert accepted.json()["organization_id"] == str(acme.organization_id)
    assert again.status_code == 404
    assert token in json.dumps(mails_to(address))
    assert person.get(at(acme, "keys")).status_code == 200
    assert person.get(at(acme, "audit_log")).status_code == 403
