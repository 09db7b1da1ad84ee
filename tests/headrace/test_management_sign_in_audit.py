"""Each organization of a person can read when they signed in, failed to, or changed how they do."""

from uuid import UUID

import pytest
from django.db import connections
from django.test import override_settings

from headrace.sign_in.sessions import forget_ended_sessions
from tenants.contracts import AuditEntry, Role
from tenants.facade import add_member, list_audit, operator_of, verify_audit_chain
from tests.headrace.door import Door, new_user
from tests.headrace.signing_in import (
    PASSWORD,
    add_authenticator,
    new_address,
    sign_in,
    sign_up,
    submit,
)
from tests.tenants.cast import make_tenant

pytestmark = pytest.mark.usefixtures("django_database", "crowd")


def member(*organizations: UUID) -> tuple[str, UUID]:
    """Somebody with a password who belongs to these: their address and id."""
    address = new_address()
    sign_up(address)
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute("SELECT id FROM tenants_user WHERE email = %s", [address])
        [user_id] = cursor.fetchone()
    for organization_id in organizations:
        add_member(organization_id, user_id, Role.DEVELOPER)
    return address, user_id


def entries(organization_id: UUID) -> list[AuditEntry]:
    """What the log says of people, oldest first."""
    log = list_audit(operator_of(organization_id), ascending=True)
    return [entry for entry in log if entry.action.startswith("user.")]


def test_a_sign_in_is_in_the_log_of_each_of_the_persons_organizations() -> None:
    acme, globex, other = (make_tenant(name).organization_id for name in ("acme", "globex", "o"))
    address, user_id = member(acme, globex)
    answer = sign_in(Door(), address)

    for organization_id in (acme, globex):
        [entry] = entries(organization_id)
        assert (entry.action, entry.actor_id, entry.target_id) == (
            "user.signed_in",
            user_id,
            str(user_id),
        )
        assert entry.ip == "127.0.0.1"
        assert entry.request_id is not None
        assert answer.headers["x-request-id"] == f"req_{entry.request_id.hex}"
        assert address not in str(entry)
        assert verify_audit_chain(organization_id).fault is None
    assert entries(other) == []


def test_a_failed_sign_in_is_there_too_without_an_actor() -> None:
    acme = make_tenant("acme").organization_id
    address, user_id = member(acme)
    sign_in(Door(), address, "not-the-password")
    sign_in(Door(), new_address(), "not-the-password")

    [entry] = entries(acme)
    assert (entry.action, entry.actor_id, entry.target_id) == (
        "user.sign_in_failed",
        None,
        str(user_id),
    )


def test_changes_of_password_and_second_factor_are_there() -> None:
    acme = make_tenant("acme").organization_id
    address, _ = member(acme)
    door = Door()
    sign_in(door, address)
    changed = submit(
        door,
        "/accounts/password/change/",
        oldpassword=PASSWORD,
        password1="another-long-secret",
        password2="another-long-secret",
    )
    add_authenticator(door, "another-long-secret")
    submit(door, "/accounts/2fa/totp/deactivate/")
    submit(door, "/accounts/logout/")

    assert changed.status_code == 302
    assert [entry.action for entry in entries(acme)] == [
        "user.signed_in",
        "user.password_changed",
        "user.second_factor_added",
        "user.second_factor_added",
        "user.second_factor_removed",
        "user.second_factor_removed",
        "user.signed_out",
    ]


@override_settings(
    CACHES={
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": "redis://127.0.0.1:1",
            "OPTIONS": {"socket_connect_timeout": 0.5},
        }
    }
)
def test_without_redis_nobody_may_try_and_who_is_in_stays_in() -> None:
    inside = Door().sign_in(new_user())
    attempt = sign_in(Door(), new_address())

    assert attempt.status_code == 503
    assert attempt.json()["error"]["code"] == "overloaded"
    assert inside.get("/api/v1/me").status_code == 200


def test_sessions_that_ended_are_forgotten_and_others_kept() -> None:
    ended, kept = (Door().sign_in(new_user()) for _ in range(2))
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "UPDATE django_session SET expire_date = now() - interval '1 s' WHERE session_key = %s",
            [ended.session_key],
        )

    assert forget_ended_sessions() >= 1
    assert kept.get("/api/v1/me").status_code == 200
    assert ended.get("/api/v1/me").status_code == 401
