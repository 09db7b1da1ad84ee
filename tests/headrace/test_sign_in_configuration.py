"""What the environment may say about sign-in, and what the house makes of it."""

import asyncio
import json
import os
import subprocess
import sys
from typing import Any

import httpx
import pytest
from allauth.account import app_settings
from django.contrib.auth.hashers import identify_hasher, make_password
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIHandler
from django.test import override_settings

from headrace.sign_in.configuration import OIDC, SAML, is_secure, providers, saml_apps

PROVIDER = {
    "provider_id": "acme",
    "name": "Acme",
    "client_id": "headrace",
    "secret": "s",
    "server_url": "https://login.acme.example",
}


@pytest.mark.parametrize(
    ("url", "secure"),
    [
        ("https://llm.example.com", True),
        ("https://127.0.0.1:8443", True),
        ("http://127.0.0.1:8000", False),
        ("http://localhost", False),
        ("http://[::1]:8000", False),
    ],
)
def test_only_plain_http_on_loopback_is_left_insecure(url: str, secure: bool) -> None:
    assert is_secure(url) is secure


@pytest.mark.parametrize(
    "url",
    ["http://llm.example.com", "http://10.0.0.1", "llm.example.com", "ftp://x", "https://x/y"],
)
def test_plain_http_elsewhere_is_refused(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="HEADRACE_PUBLIC_URL"):
        is_secure(url)


def test_a_provider_comes_from_the_environment() -> None:
    [app] = providers({OIDC: json.dumps([PROVIDER])})["openid_connect"]["APPS"]

    assert app["provider_id"] == "acme"
    assert app["settings"] == {
        "server_url": "https://login.acme.example",
        "oauth_pkce_enabled": True,
    }
    assert providers({}) == {"openid_connect": {"APPS": []}}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        json.dumps([{"provider_id": "acme"}]),
        json.dumps([{**PROVIDER, "extra": 1}]),
        json.dumps([{**PROVIDER, "server_url": "http://login.acme.example"}]),
    ],
)
def test_a_provider_that_is_not_whole_stops_the_start(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=OIDC):
        providers({OIDC: text})


def test_saml_without_its_extra_says_what_to_install() -> None:
    assert saml_apps({}) == []
    with pytest.raises(ImproperlyConfigured, match=r"headrace\[saml\]"):
        saml_apps({SAML: "[]"})


def settings_under(**environment: str) -> dict[str, Any]:
    """Settings as a process of that environment has them."""
    names = [
        "DEBUG",
        "ALLOWED_HOSTS",
        "SESSION_COOKIE_NAME",
        "SESSION_COOKIE_SECURE",
        "SESSION_COOKIE_HTTPONLY",
        "SESSION_COOKIE_SAMESITE",
        "CSRF_COOKIE_SECURE",
        "SECURE_HSTS_SECONDS",
        "CSRF_TRUSTED_ORIGINS",
    ]
    code = (
        "import json; from headrace import settings as s; from django.conf import global_settings;"
        f"print(json.dumps({{n: getattr(s, n, getattr(global_settings, n)) for n in {names}}}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_public_house_secures_its_cookies() -> None:
    settings = settings_under(HEADRACE_PUBLIC_URL="https://llm.example.com")

    assert settings == {
        "DEBUG": False,
        "ALLOWED_HOSTS": ["localhost", "127.0.0.1", "[::1]", "llm.example.com"],
        "SESSION_COOKIE_NAME": "__Host-headrace",
        "SESSION_COOKIE_SECURE": True,
        "SESSION_COOKIE_HTTPONLY": True,
        "SESSION_COOKIE_SAMESITE": "Lax",
        "CSRF_COOKIE_SECURE": True,
        "SECURE_HSTS_SECONDS": 31536000,
        "CSRF_TRUSTED_ORIGINS": ["https://llm.example.com"],
    }


@pytest.mark.usefixtures("django_database")
@override_settings(SECURE_HSTS_SECONDS=31536000)
def test_over_https_browsers_are_told_to_stay_there() -> None:
    handler: Any = ASGIHandler()  # with the middleware of these settings

    async def ask(scheme: str) -> httpx.Response:
        transport = httpx.ASGITransport(app=handler)
        async with httpx.AsyncClient(transport=transport, base_url=f"{scheme}://127.0.0.1") as web:
            return await web.get("/accounts/login/")

    told = asyncio.run(ask("https")).headers["strict-transport-security"]
    assert told == "max-age=31536000"
    assert "strict-transport-security" not in asyncio.run(ask("http")).headers


def test_a_short_secret_key_stops_the_start() -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        settings_under(HEADRACE_SECRET_KEY="short")

    assert "at least 32 characters" in refused.value.stderr


def test_passwords_are_hashed_by_scrypt() -> None:
    assert identify_hasher(make_password("correct-horse-battery")).algorithm == "scrypt"


def test_many_tries_from_one_address_are_limited() -> None:
    limits = app_settings.RATE_LIMITS

    assert limits["login_failed"] == "10/m/ip,5/300s/key"
    assert limits["login"] == "30/m/ip"
    assert limits["signup"] == "20/m/ip"
