"""The management API's door for tests: the very ASGI application of the web process's REST half.

No engine and no socket: each request goes through Django's handler, its middleware and its thread,
in this process. `Door` keeps cookies as a browser does, and sends the CSRF token with them.
"""

import asyncio
import time
from typing import Any, cast
from uuid import UUID, uuid4

import httpx

from tenants.contracts import Permission, Role

HOST = "http://127.0.0.1"


class Door:
    """A client of the REST routes: with a key, with a session, or with neither."""

    def __init__(self, key: str | None = None) -> None:
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self.cookies = httpx.Cookies()

    def sign_in(self, user_id: UUID, seconds_ago: float = 0) -> "Door":
        """A session as a completed sign-in leaves it, without the forms; returns itself."""
        from allauth.account.internal.userkit import user_id_to_str
        from django.conf import settings
        from django.contrib.auth import get_user_model, login
        from django.contrib.sessions.backends.db import SessionStore
        from django.http import HttpRequest

        request = HttpRequest()
        request.session = SessionStore()
        user = get_user_model()._default_manager.get(pk=user_id)
        login(request, user, backend="allauth.account.auth_backends.AuthenticationBackend")
        request.session["account_authentication_methods"] = [
            {"method": "password", "at": time.time() - seconds_ago}
        ]
        request.session["account_authentication_methods_user"] = user_id_to_str(user)
        request.session.save()
        name = settings.SESSION_COOKIE_NAME
        self.cookies.set(name, str(request.session.session_key), domain="127.0.0.1")
        self.cookies.set("csrftoken", "c" * 32, domain="127.0.0.1")
        return self

    @property
    def session_key(self) -> str:
        """What the session's cookie holds."""
        from django.conf import settings

        return self.cookies[settings.SESSION_COOKIE_NAME]

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request; see httpx.Client.request for the options."""
        return asyncio.run(self._request(method, path, options))

    async def _request(self, method: str, path: str, options: dict[str, Any]) -> httpx.Response:
        from headrace.asgi import rest

        headers = {**self._headers, **options.pop("headers", {})}
        if "csrftoken" in self.cookies:
            headers.setdefault("x-csrftoken", self.cookies["csrftoken"])
        transport = httpx.ASGITransport(app=cast("Any", rest))
        async with httpx.AsyncClient(
            transport=transport, base_url=HOST, cookies=self.cookies, headers=headers
        ) as client:
            answer = await client.request(method, path, **options)
            self.cookies = client.cookies
        return answer

    def get(self, path: str, **options: Any) -> httpx.Response:
        """GET."""
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        """POST."""
        return self.request("POST", path, **options)

    def patch(self, path: str, **options: Any) -> httpx.Response:
        """PATCH."""
        return self.request("PATCH", path, **options)

    def delete(self, path: str, **options: Any) -> httpx.Response:
        """DELETE."""
        return self.request("DELETE", path, **options)


def new_user() -> UUID:
    """A person who belongs nowhere yet."""
    from django.contrib.auth import get_user_model

    address = f"{uuid4().hex[:12]}@example.com"
    user_id: UUID = get_user_model()._default_manager.create_user(email=address).pk
    return user_id


def member_of(organization_id: UUID, role: Role, seconds_ago: float = 0) -> Door:
    """The door of a new person with that role, who signed in so many seconds ago."""
    from tenants.facade import add_member

    user_id = new_user()
    add_member(organization_id, user_id, role)
    return Door().sign_in(user_id, seconds_ago)


def admin_key(organization_id: UUID, *permissions: Permission) -> str:
    """The secret of an admin key with these permissions, or with all."""
    from tenants.facade import create_admin_key, operator_of

    allowed = frozenset(permissions or Permission)
    return create_admin_key(operator_of(organization_id), "test", allowed).secret
