"""Where a request to Django came from: its address and the id its answer will carry.

For the audit log and for counting attempts; never for saying who somebody is.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest

from headrace.client_address import client_address


def address_of(request: HttpRequest) -> str:
    """The client's address; '' where the connection has none."""
    return client_address(
        str(request.META.get("REMOTE_ADDR") or ""),
        request.META.get("HTTP_X_FORWARDED_FOR", ""),
        settings.TRUSTED_PROXIES,
    )


def request_id_of(request: HttpRequest) -> UUID | None:
    """What `x-request-id` will say; None outside the ASGI application."""
    scope: Mapping[str, Any] = getattr(request, "scope", {})
    request_id: UUID | None = scope.get("headrace.request_id")
    return request_id
