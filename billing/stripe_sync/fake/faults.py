"""Stripe's errors as the fake raises them; `app` renders them. Raised by every other module."""

from typing import Any


class Fault(Exception):
    """One API error: its HTTP status and the members of Stripe's `error` object."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type_: str = "invalid_request_error",
        **members: Any,  # the rest of the error object, as Stripe names it
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = {"type": type_, "message": message} | {
            key: value for key, value in members.items() if value is not None
        }


def invalid(message: str, param: str | None = None, code: str | None = None) -> Fault:
    """400: the request makes no sense."""
    return Fault(400, message, param=param, code=code)


def missing(kind: str, object_id: str, param: str = "id") -> Fault:
    """404 for an id in the path, as Stripe answers; 400 where a parameter named it."""
    status = 404 if param == "id" else 400
    return Fault(status, f"No such {kind}: '{object_id}'", param=param, code="resource_missing")
