"""Signing up, in and out, by the forms that people see."""

import re
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.db import connections
from django.urls import reverse

from tests.headrace.door import Door
from tests.headrace.signing_in import (
    PASSWORD,
    add_authenticator,
    link_in,
    mails_to,
    new_address,
    sign_in,
    sign_up,
    submit,
)

pytestmark = pytest.mark.usefixtures("django_database", "crowd")


def is_signed_in(door: Door) -> bool:
    return door.get("/api/v1/me").status_code == 200


def test_who_signs_up_must_read_their_mail_first() -> None:
    address, door = new_address(), Door()
    submit(door, "/accounts/signup/", email=address, password1=PASSWORD, password2=PASSWORD)
    early = sign_in(Door(), address)
    submit(door, link_in(mails_to(address)[0]))
    person = Door()
    answer = sign_in(person, address)

    assert urlsplit(early.headers["location"]).path == "/accounts/confirm-email/"
    assert answer.status_code == 302
    assert is_signed_in(person)


def test_a_taken_address_is_not_told_from_a_free_one() -> None:
    taken, free = new_address(), new_address()
    sign_up(taken)
    answers = [
        submit(Door(), "/accounts/signup/", email=one, password1=PASSWORD, password2=PASSWORD)
        for one in (taken, free)
    ]

    assert len({(one.status_code, one.headers["location"]) for one in answers}) == 1
    assert len(mails_to(free)) == 1


def test_a_wrong_password_and_an_unknown_address_read_alike() -> None:
    known = new_address()
    sign_up(known)
    answers = [
        sign_in(Door(), known, "wrong-password-here"),
        sign_in(Door(), new_address(), "wrong-password-here"),
    ]

    texts = [re.sub(r'value="[^"]*"', "", answer.text) for answer in answers]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert texts[0] == texts[1]
    assert "not correct" in texts[0]


def test_a_session_is_another_after_signing_in() -> None:
    address, door = new_address(), Door()
    sign_up(address)
    door.cookies = sign_up(new_address()).cookies
    sign_in(door, address)
    first = door.cookies[settings.SESSION_COOKIE_NAME]
    submit(door, "/accounts/logout/")
    sign_in(door, address)

    assert door.cookies[settings.SESSION_COOKIE_NAME] != first
    stolen = Door()
    stolen.cookies.set(settings.SESSION_COOKIE_NAME, first, domain="127.0.0.1")
    assert not is_signed_in(stolen)


def test_a_reset_password_ends_the_other_sessions() -> None:
    address = new_address()
    door = sign_up(address)
    sign_in(door, address)
    stranger = Door()
    submit(stranger, "/accounts/password/reset/", email=address)
    path = link_in(mails_to(address)[-1])
    form = stranger.get(path).headers["location"]
    submit(stranger, form, password1="another-long-secret", password2="another-long-secret")

    assert not is_signed_in(door)
    assert sign_in(Door(), address).status_code == 200
    assert sign_in(Door(), address, "another-long-secret").status_code == 302


@pytest.mark.parametrize("weak", ["short-one", "password12345", "123456789012345"])
def test_a_weak_password_is_refused(weak: str) -> None:
    answer = submit(
        Door(), "/accounts/signup/", email=new_address(), password1=weak, password2=weak
    )

    assert answer.status_code == 200
    assert "errorlist" in answer.text


def with_second_factor(address: str) -> tuple[str, list[str]]:
    """Adds an authenticator app; its secret and the recovery codes."""
    door = sign_up(address)
    sign_in(door, address)
    return add_authenticator(door)


def test_a_second_factor_is_asked_for_and_its_secret_is_sealed() -> None:
    address = new_address()
    secret, codes = with_second_factor(address)
    door = Door()
    first = sign_in(door, address)
    before = is_signed_in(door)
    wrong = submit(door, "/accounts/2fa/authenticate/", code="000000")
    right = submit(door, "/accounts/2fa/authenticate/", code=codes[0])

    assert urlsplit(first.headers["location"]).path == "/accounts/2fa/authenticate/"
    assert not before
    assert (wrong.status_code, right.status_code) == (200, 302)
    assert is_signed_in(door)
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT data::text FROM mfa_authenticator")
        stored = " ".join(row[0] for row in cursor.fetchall())
    assert secret not in stored
    assert len(codes) == 10


def test_a_recovery_code_opens_once() -> None:
    address = new_address()
    _, codes = with_second_factor(address)
    outcomes = []
    for _ in range(2):
        door = Door()
        sign_in(door, address)
        outcomes.append(submit(door, "/accounts/2fa/authenticate/", code=codes[1]).status_code)

    assert outcomes == [302, 200]


def test_attempts_are_limited_by_account() -> None:
    address = new_address()
    sign_up(address)
    for _ in range(5):
        sign_in(Door(), address, "wrong-password-here")
    answer = sign_in(Door(), address)

    assert answer.status_code == 200
    assert "Too many failed" in answer.text


def test_pages_load_nothing_from_elsewhere_and_run_nothing_inline() -> None:
    address = new_address()
    door = sign_up(address)
    pages = [door.get(path) for path in ("/accounts/login/", "/accounts/signup/")]
    sign_in(door, address)
    submit(door, "/accounts/reauthenticate/", password=PASSWORD)
    pages += [
        door.get(path)
        for path in (
            "/accounts/email/",
            "/accounts/password/change/",
            "/accounts/2fa/",
            "/accounts/2fa/totp/activate/",
            "/accounts/2fa/webauthn/add/",
            "/accounts/3rdparty/",
            "/accounts/logout/",
        )
    ]

    scripts = set()
    for page in pages:
        assert page.status_code == 200, page.url
        assert page.headers["content-security-policy"].startswith("default-src 'self'")
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert page.headers["x-frame-options"] == "DENY"
        assert not re.findall(r'\son\w+="|\sstyle="|<style|https?://(?!127\.0\.0\.1)', page.text)
        for attributes, body in re.findall(r"<script([^>]*)>(.*?)</script>", page.text, re.DOTALL):
            assert 'type="application/json"' in attributes or not body.strip(), page.url
            scripts |= set(re.findall(r'src="([^"]+)"', attributes))
    assert scripts
    assert {door.get(path).status_code for path in scripts} == {200}


def test_cookies_of_a_session_are_out_of_reach() -> None:
    address, door = new_address(), Door()
    sign_up(address)
    answer = sign_in(door, address)

    session = next(
        cookie
        for cookie in answer.headers.get_list("set-cookie")
        if cookie.startswith(settings.SESSION_COOKIE_NAME)
    )
    assert "HttpOnly" in session
    assert "SameSite=Lax" in session


def test_a_form_without_its_token_is_refused() -> None:
    answer = Door().post("/accounts/login/", data={"login": "x@example.com", "password": "x"})

    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "csrf_failed"


def test_a_persons_security_keys_are_nobody_elses() -> None:
    address, other = new_address(), new_address()
    for one in (address, other):
        sign_up(one)
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO mfa_authenticator (user_id, type, data, created_at)"
            " SELECT id, 'webauthn', '{\"name\": \"key\"}', now() FROM tenants_user"
            " WHERE email = %s RETURNING id",
            [other],
        )
        [key_id] = cursor.fetchone()
    door = Door()
    sign_in(door, address)
    submit(door, "/accounts/reauthenticate/", password=PASSWORD)
    answers = [
        door.get(reverse(route, kwargs={"pk": key_id}))
        for route in ("mfa_edit_webauthn", "mfa_remove_webauthn")
    ]

    assert [answer.status_code for answer in answers] == [404, 404]


def test_a_link_leads_to_us_whatever_name_the_request_called_us_by() -> None:
    address, door = new_address(), Door()
    sign_up(address)
    page = door.get("/accounts/password/reset/")
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
    assert token is not None
    door.post(
        "/accounts/password/reset/",
        data={"email": address, "csrfmiddlewaretoken": token[1]},
        headers={"host": "localhost"},
    )

    assert link_in(mails_to(address)[-1]).startswith("/accounts/password/reset/key/")
    assert "localhost" not in mails_to(address)[-1]["body"]
