"""Signing in by a company's identity provider, against one on loopback."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth import get_user_model
from django.test import override_settings

from tests.headrace.door import Door
from tests.headrace.identity_provider import IdentityProvider, identifying
from tests.headrace.signing_in import link_in, mails_to, new_address, sign_up, submit

pytestmark = pytest.mark.usefixtures("django_database", "crowd")
LOGIN = "/accounts/oidc/acme/login/"


@pytest.fixture
def acme_login() -> Iterator[IdentityProvider]:
    """Acme's provider, configured as the environment would."""
    with identifying() as provider:
        app = {
            "provider_id": "acme",
            "name": "Acme",
            "client_id": "headrace",
            "secret": "shared",
            "settings": {"server_url": provider.url, "oauth_pkce_enabled": True},
        }
        with override_settings(SOCIALACCOUNT_PROVIDERS={"openid_connect": {"APPS": [app]}}):
            yield provider


def come_back(door: Door, state: str | None = None, login: str = LOGIN) -> httpx.Response:
    """Goes to the provider, which says yes at once, and comes back."""
    asked = parse_qs(urlsplit(submit(door, login).headers["location"]).query)
    assert asked["code_challenge_method"] == ["S256"]
    back = f"/accounts/oidc/acme/login/callback/?code=yes&state={state or asked['state'][0]}"
    return door.get(back)


def is_signed_in(door: Door) -> bool:
    return door.get("/api/v1/me").status_code == 200


def test_a_confirmed_address_signs_in(acme_login: IdentityProvider) -> None:
    acme_login.person = {"sub": "1", "email": new_address(), "email_verified": True}
    door = Door()
    come_back(door)

    assert is_signed_in(door)
    [asked] = acme_login.token_requests
    assert (asked["client_id"], asked["client_secret"]) == ("headrace", "shared")
    assert asked["code_verifier"]


def test_an_address_the_provider_did_not_confirm_is_confirmed_by_mail(
    acme_login: IdentityProvider,
) -> None:
    address = new_address()
    acme_login.person = {"sub": "2", "email": address, "email_verified": False}
    door = Door()
    come_back(door)

    assert not is_signed_in(door)
    assert link_in(mails_to(address)[0]).startswith("/accounts/confirm-email/")


def test_a_provider_takes_over_nobodys_account(acme_login: IdentityProvider) -> None:
    address = new_address()
    sign_up(address)
    acme_login.person = {"sub": "3", "email": address, "email_verified": True}
    door = Door()
    come_back(door)

    assert not is_signed_in(door)


def test_an_answer_nobody_asked_for_is_refused(acme_login: IdentityProvider) -> None:
    acme_login.person = {"sub": "4", "email": new_address(), "email_verified": True}
    door = Door()
    come_back(door, state="forged")

    assert not is_signed_in(door)
    assert acme_login.token_requests == []


def test_the_page_lets_its_form_end_at_a_provider(acme_login: IdentityProvider) -> None:
    page = Door().get(LOGIN)

    assert "form-action 'self' https:" in page.headers["content-security-policy"]


def test_a_provider_nobody_configured_is_not_there(acme_login: IdentityProvider) -> None:
    assert Door().get("/accounts/oidc/globex/login/").status_code == 404


def test_an_old_session_connects_no_provider(acme_login: IdentityProvider) -> None:
    address = new_address()
    sign_up(address)
    person = get_user_model()._default_manager.get(email=address)
    stolen = Door().sign_in(person.pk, seconds_ago=6 * 24 * 3600)
    acme_login.person = {"sub": "5", "email": new_address(), "email_verified": True}
    answer = come_back(stolen, login=f"{LOGIN}?process=connect")

    assert urlsplit(answer.headers["location"]).path == "/accounts/reauthenticate/"
    assert not SocialAccount.objects.filter(user=person).exists()
