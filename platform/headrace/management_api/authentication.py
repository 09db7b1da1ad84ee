"""API keys on the REST views: the same look-up and the same errors as the token routes."""

from dataclasses import dataclass

from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

import tenants.facade
from headrace.gateway.admission.auth import secret_from_headers
from tenants.contracts import KeyIdentity


@dataclass(frozen=True, slots=True)
class ApiKeyUser:
    """What a REST view sees as `request.user`."""

    identity: KeyIdentity
    is_authenticated: bool = True
    is_active: bool = True


def calling_identity(request: Request) -> KeyIdentity:
    """The identity behind a request that `ApiKeyAuthentication` let through."""
    user: object = request.user
    assert isinstance(user, ApiKeyUser)
    return user.identity


class ApiKeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer` or `x-api-key`; errors are rendered as 401s by the handler."""

    def authenticate(self, request: Request) -> tuple[ApiKeyUser, None]:
        """Raises ApiError, KeyMalformed or KeyRejected."""
        secret = secret_from_headers(
            request.headers.get("authorization"), request.headers.get("x-api-key")
        )
        return ApiKeyUser(tenants.facade.authenticate(secret)), None
