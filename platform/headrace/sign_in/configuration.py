"""Identity providers and the public address, out of the environment, for the settings.

Pure functions that import nothing of Django's apps: settings call them while Django starts.
"""

import importlib.util
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

LOOPBACK = ("localhost", "127.0.0.1", "::1")
OIDC = "HEADRACE_OIDC_PROVIDERS"
"""A JSON array of {"provider_id", "name", "client_id", "secret", "server_url"}."""
SAML = "HEADRACE_SAML_PROVIDERS"
"""A JSON array of {"provider_id", "name", "client_id", "idp"}; needs the extra `saml`."""
_OIDC_FIELDS = frozenset({"provider_id", "name", "client_id", "secret", "server_url"})
_SAML_FIELDS = frozenset({"provider_id", "name", "client_id", "idp"})


def is_secure(public_url: str) -> bool:
    """Whether cookies are for HTTPS only: everywhere but over plain HTTP on loopback.

    Raises ImproperlyConfigured for plain HTTP elsewhere, and for what is no web address.
    """
    url = urlsplit(public_url)
    if url.scheme not in ("http", "https") or not url.hostname or url.path or url.query:
        raise ImproperlyConfigured(
            f"HEADRACE_PUBLIC_URL must be like https://llm.example.com, not {public_url!r}"
        )
    if url.scheme == "http" and url.hostname not in LOOPBACK:
        raise ImproperlyConfigured(
            f"HEADRACE_PUBLIC_URL is {public_url!r}: beyond this machine it must be https"
        )
    return url.scheme == "https"


def saml_apps(environment: Mapping[str, str]) -> list[str]:
    """The Django app of SAML, when a provider asks for it and the extra is installed."""
    if not environment.get(SAML):
        return []
    if importlib.util.find_spec("onelogin") is None:
        raise ImproperlyConfigured(f"{SAML} is set: install the extra, headrace[saml]")
    return ["allauth.socialaccount.providers.saml"]


def providers(environment: Mapping[str, str]) -> dict[str, Any]:
    """allauth's SOCIALACCOUNT_PROVIDERS; raises ImproperlyConfigured naming the bad variable."""
    oidc = [
        {
            "provider_id": one["provider_id"],
            "name": one["name"],
            "client_id": one["client_id"],
            "secret": one["secret"],
            "settings": {"server_url": one["server_url"], "oauth_pkce_enabled": True},
        }
        for one in _entries(environment, OIDC, _OIDC_FIELDS)
    ]
    if any(urlsplit(str(one["settings"]["server_url"])).scheme != "https" for one in oidc):
        raise ImproperlyConfigured(f"{OIDC}: every server_url must be https")
    saml = [
        {
            "provider_id": one["provider_id"],
            "name": one["name"],
            "client_id": one["client_id"],
            "settings": {"idp": one["idp"]},
        }
        for one in _entries(environment, SAML, _SAML_FIELDS)
    ]
    return {"openid_connect": {"APPS": oidc}} | ({"saml": {"APPS": saml}} if saml else {})


def _entries(
    environment: Mapping[str, str], variable: str, fields: frozenset[str]
) -> list[dict[str, Any]]:
    text = environment.get(variable)
    if not text:
        return []
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise ImproperlyConfigured(f"{variable} is no JSON: {error}") from error
    whole = isinstance(entries, list) and all(
        isinstance(entry, dict) and set(entry) == fields for entry in entries
    )
    if not whole:
        raise ImproperlyConfigured(
            f"{variable} must be an array of objects with exactly {', '.join(sorted(fields))}"
        )
    found: list[dict[str, Any]] = entries
    return found
