"""Who calls a REST view: a person by their session, or a program by its API key.

A key is looked up and refused exactly as on the token routes. A session counts only with its CSRF
token on methods that write. Nothing is decided here about what the caller may do.
"""

from dataclasses import dataclass
from uuid import UUID

from allauth.account.authentication import get_authentication_records
from rest_framework import authentication, exceptions
from rest_framework.request import Request

from headrace import errors
from headrace.gateway.admission.auth import authenticate, secret_from_headers
from headrace.request_origin import address_of
from headrace.sign_in.second_factors import has_second_factor
from tenants.contracts import KeyIdentity


@dataclass(frozen=True, slots=True)
class ApiKeyUser:
    """What a REST view sees as `request.user` of a program."""

    identity: KeyIdentity
    is_authenticated: bool = True
    is_active: bool = True


@dataclass(frozen=True, slots=True)
class SessionUser:
    """What a REST view sees as `request.user` of a person."""

    user_id: UUID
    email: str
    display_name: str
    signed_in_at: float
    """When they last proved who they are, in seconds since the epoch; 0 is never."""
    has_second_factor: bool
    is_authenticated: bool = True
    is_active: bool = True


def calling_identity(request: Request) -> KeyIdentity:
    """The identity behind a request that `ApiKeyAuthentication` let through."""
    user: object = request.user
    assert isinstance(user, ApiKeyUser)
    return user.identity


class ApiKeyAuthentication(authentication.BaseAuthentication):
    """`Authorization: Bearer` or `x-api-key`; errors are rendered as 401s by the handler."""

    def authenticate(self, request: Request) -> tuple[ApiKeyUser, None]:
        """Raises ApiError 401, 403 or 429."""
        secret = secret_from_headers(
            request.headers.get("authorization"), request.headers.get("x-api-key")
        )
        return ApiKeyUser(authenticate(secret, address_of(request))), None


class SessionAuthentication(authentication.SessionAuthentication):
    """The session cookie; a request that writes must carry the CSRF token too.

    A request that brings a key is never taken for the person whose cookie it carries.
    """

    def authenticate(self, request: Request) -> tuple[SessionUser, None] | None:
        """None without a session; raises ApiError 403 without the CSRF token."""
        if "authorization" in request.headers or "x-api-key" in request.headers:
            return None
        try:
            found = super().authenticate(request)
        except exceptions.PermissionDenied as error:
            raise errors.csrf_failed() from error
        if found is None:
            return None
        user = found[0]
        proofs = get_authentication_records(request._request, user)  # noqa: SLF001 - no other way
        signed_in_at = max((proof["at"] for proof in proofs), default=0.0)
        return SessionUser(
            user.pk, user.email, user.display_name, signed_in_at, has_second_factor(user.pk)
        ), None
