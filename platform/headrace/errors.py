"""The errors a client can meet, and how each one looks on the wire.

Domain packages raise typed errors; this file alone decides their status, type, code and retry
advice (the table in docs/architecture.md). The gateway, the socket and the REST views all render
through it, so a given fault reads the same on every door.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import DatabaseError, InterfaceError
from django.http import Http404
from rest_framework.exceptions import (
    APIException,
    AuthenticationFailed,
    MethodNotAllowed,
    NotAuthenticated,
)
from rest_framework.response import Response

import batch_jobs.contracts
import billing.contracts
import tenants.contracts
import tenants.contracts.retention
from headrace.telemetry import metrics

RETRY_OVERLOADED_S = 2.0


@dataclass(slots=True)
class ApiError(Exception):
    """A refusal or failure with everything a client needs to react to it.

    `should_retry` None leaves the SDK to its default for the status; `retry_after_s` becomes
    `retry-after` (whole seconds, at least 1) and `retry-after-ms`.
    """

    status: int
    message: str
    type: str = "invalid_request_error"
    code: str | None = None
    param: str | None = None
    should_retry: bool | None = False
    retry_after_s: float | None = None
    extra_headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message

    def body(self) -> dict[str, Any]:
        """OpenAI's error object: all four fields, always."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }

    def headers(self) -> dict[str, str]:
        """Retry advice and limits, for clients that read headers."""
        headers = dict(self.extra_headers)
        if self.should_retry is not None:
            headers["x-should-retry"] = "true" if self.should_retry else "false"
        if self.retry_after_s is not None:
            headers["retry-after"] = str(max(1, math.ceil(self.retry_after_s)))
            headers["retry-after-ms"] = str(max(1, math.ceil(self.retry_after_s * 1000)))
        return headers


@dataclass(slots=True)
class QuotaUsedUp(ApiError):
    """429 as `insufficient_quota`, for a quota of the tenant's own, which starts anew."""

    quota: billing.contracts.QuotaInTheWay | None = None


@dataclass(slots=True)
class AboveBound(ApiError):
    """A request of bulk work might cost `amount_pico`, more than its job lets it; never shown."""

    amount_pico: int = 0


def invalid(message: str, param: str | None, code: str | None = "invalid_value") -> ApiError:
    """400: the request is not one we can serve as written."""
    return ApiError(400, message, code=code, param=param)


def unsupported(param: str) -> ApiError:
    """400: a field we know, asked for in a way that would change the answer, and cannot honour."""
    return ApiError(
        400,
        f"'{param}' is not supported by this server yet; leave it out or at its default.",
        code="unsupported_parameter",
        param=param,
    )


def key_missing() -> ApiError:
    """401: no credentials where a key is needed."""
    return ApiError(
        401, "You didn't provide an API key. Send it as 'Authorization: Bearer YOUR_KEY'."
    )


def key_invalid() -> ApiError:
    """401: one text for unknown, revoked, expired and malformed keys."""
    return ApiError(401, "Incorrect API key provided.", code="invalid_api_key")


def tenant_mismatched(kind: str) -> ApiError:
    """401: an OpenAI-Organization or OpenAI-Project header that is not the key's own."""
    return ApiError(
        401,
        f"The OpenAI-{kind.title()} header does not match the {kind} of the API key.",
        code=f"mismatched_{kind}",
    )


def keys_differ() -> ApiError:
    """401: two credentials, and no saying which is meant."""
    return ApiError(401, "Two different API keys were sent.")


def origin_forbidden() -> ApiError:
    """403: a page of another site may not open sockets here."""
    return ApiError(403, "This origin may not open a socket here.", type="permission_error")


def csrf_failed() -> ApiError:
    """403: a request by session that another site may have written."""
    return ApiError(
        403,
        "The CSRF token is missing or wrong; send the cookie's value as 'X-CSRFToken'.",
        type="permission_error",
        code="csrf_failed",
    )


def insufficient_permissions(message: str) -> ApiError:
    """403: known, but may not do this here."""
    return ApiError(403, message, type="permission_error", code="insufficient_permissions")


def key_not_for_management() -> ApiError:
    """403: a project's key infers; it does not administer."""
    return insufficient_permissions("This API key is a project's; it takes an admin key.")


def sign_in_again() -> ApiError:
    """403: a sensitive act, in a session whose sign-in is not recent."""
    return ApiError(
        403,
        "Please sign in again to do this.",
        type="permission_error",
        code="reauthentication_required",
    )


def second_factor_required(message: str) -> ApiError:
    """403: nothing but a second factor of the person's own opens this; it is added by them."""
    return ApiError(
        403,
        f"{message} Add yours under /accounts/2fa/.",
        type="permission_error",
        code="second_factor_required",
    )


def host_unknown() -> ApiError:
    """400: a host name we do not answer to."""
    return invalid("The request is malformed, or its Host is not ours.", None)


def unknown_url(method: str, path: str, advice: str = "") -> ApiError:
    """404: no such route; `advice` names the right one where the guess is easy."""
    return ApiError(404, f"Unknown request URL: {method} {path[:200]}.{advice}", code="unknown_url")


def method_not_allowed(method: str, path: str, allowed: str) -> ApiError:
    """405: the route exists, for another method."""
    return ApiError(
        405,
        f"Not allowed to {method} on {path[:200]}; use {allowed}.",
        extra_headers={"allow": allowed},
    )


def body_late() -> ApiError:
    """408: the body did not arrive in time."""
    return ApiError(408, "The request body did not arrive in time.", should_retry=True)


def duplicate_request() -> ApiError:
    """409: a hold of this request id exists."""
    return ApiError(409, "This request id was used before.", code="duplicate")


def idempotency_key_invalid() -> ApiError:
    """400: an Idempotency-Key that cannot be stored."""
    return invalid("Idempotency-Key must be 1 to 255 printable ASCII characters.", None)


def idempotency_key_missing() -> ApiError:
    """400: a request that moves money must say which one it is."""
    return invalid("This request needs an Idempotency-Key header.", None, "missing_header")


def idempotency_running() -> ApiError:
    """409: the first request of this key has no answer yet; clients ask again by themselves."""
    return ApiError(
        409,
        "A request with this Idempotency-Key is still running.",
        type="idempotency_error",
        should_retry=True,
        retry_after_s=RETRY_OVERLOADED_S,
    )


def idempotency_body_differs() -> ApiError:
    """422: a key is for one request."""
    return ApiError(
        422,
        "This Idempotency-Key was used with another request body.",
        type="idempotency_error",
    )


def idempotent_answer_too_large() -> ApiError:
    """409: the request was served and charged, its answer was too large to keep."""
    return ApiError(
        409,
        "The request of this Idempotency-Key was served, but its answer was too large to keep.",
        type="idempotency_error",
    )


def body_too_large(bytes_max: int) -> ApiError:
    """413: larger than a body may be there."""
    return ApiError(413, f"The request body is larger than {bytes_max} bytes.")


def cancelled() -> ApiError:
    """499: told to a socket whose request was cancelled; never sent over HTTP."""
    return ApiError(499, "The request was cancelled.", code="cancelled")


def project_archived() -> ApiError:
    """403: the key is valid, its project takes no requests any more."""
    return ApiError(
        403,
        "The project of this API key is archived.",
        type="permission_error",
        code="insufficient_permissions",
    )


def organization_suspended() -> ApiError:
    """403: the key is valid, its organization may not infer."""
    return ApiError(
        403,
        "The organization of this API key is suspended.",
        type="permission_error",
        code="insufficient_permissions",
    )


def model_not_found(model: str) -> ApiError:
    """404: unknown, not for this tenant, or without a price."""
    shown = model if len(model) <= 100 else f"{model[:100]}..."
    return ApiError(
        404,
        f"The model '{shown}' does not exist or you do not have access to it.",
        code="model_not_found",
        param="model",
    )


def model_retired(model: str, successor: str | None) -> ApiError:
    """404: the model was shut down; the message names the one to go to."""
    shown = model if len(model) <= 100 else f"{model[:100]}..."
    advice = f" Use '{successor}' instead." if successor else ""
    return ApiError(
        404,
        f"The model '{shown}' has been shut down.{advice}",
        code="model_not_found",
        param="model",
    )


def context_length_exceeded(context_tokens_max: int, asked_tokens: int, param: str) -> ApiError:
    """400: prompt and asked output do not fit the model."""
    return ApiError(
        400,
        f"This model's maximum context length is {context_tokens_max} tokens, however you "
        f"requested {asked_tokens} tokens. Please reduce '{param}'.",
        code="context_length_exceeded",
        param=param,
    )


def insufficient_quota(message: str) -> ApiError:
    """429 that no retry mends: the money or the hard budget is gone."""
    return ApiError(429, message, type="insufficient_quota", code="insufficient_quota")


def quota_used_up(quota: billing.contracts.QuotaInTheWay, message: str) -> QuotaUsedUp:
    """429 that waiting for the next day or month mends."""
    same = insufficient_quota(message)
    return QuotaUsedUp(same.status, message, type=same.type, code=same.code, quota=quota)


def above_bound(amount_pico: int, bound_pico: int) -> AboveBound:
    """429 that another bound mends; nothing was held."""
    message = f"This may cost {amount_pico} pico-units and is bound to {bound_pico}."
    return AboveBound(
        429, message, type="insufficient_quota", code="above_bound", amount_pico=amount_pico
    )


def rate_limited(kind: str, message: str, retry_after_s: float) -> ApiError:
    """429 that time mends; `kind` is requests or tokens."""
    return ApiError(
        429,
        message,
        type=kind,
        code="rate_limit_exceeded",
        should_retry=None,
        retry_after_s=retry_after_s,
    )


def overloaded(message: str) -> ApiError:
    """503: full, draining, or a dependency is away; nothing was charged."""
    return ApiError(
        503,
        message,
        type="server_error",
        code="overloaded",
        should_retry=True,
        retry_after_s=RETRY_OVERLOADED_S,
    )


def payments_unavailable() -> ApiError:
    """503: nobody here takes payments now; nothing was charged."""
    return ApiError(503, "Payments cannot be taken now.", type="server_error", code="unavailable")


def engine_failed(message: str = "The engine failed while computing this request.") -> ApiError:
    """500: our fault; only what the client already received is charged."""
    return ApiError(500, message, type="server_error", code="engine_error", should_retry=True)


def timed_out(message: str) -> ApiError:
    """504: the engine did not answer in time."""
    return ApiError(504, message, type="server_error", code="timeout", should_retry=True)


def from_domain(error: Exception) -> ApiError | None:
    """The wire form of a typed domain error, or None for one that has none."""
    match error:
        case ApiError():
            return error
        case tenants.contracts.TenantError():
            return _from_tenants(error)
        case DatabaseError() | InterfaceError():
            return overloaded("The database is away; try again shortly.")
        case billing.contracts.BillingError():
            return _from_billing(error)
        case batch_jobs.contracts.BatchError():
            return _from_batch_jobs(error)
    return None


def _from_batch_jobs(error: batch_jobs.contracts.BatchError) -> ApiError | None:
    match error:
        case batch_jobs.contracts.JobNotFound():
            return ApiError(404, "No such object.")
        case batch_jobs.contracts.FileMissing():
            return ApiError(404, str(error))
        case batch_jobs.contracts.JobStateWrong():
            return ApiError(409, str(error), code=error.code)
        case batch_jobs.contracts.StorageFull():
            return ApiError(413, str(error), code=error.code)
        case batch_jobs.contracts.StorageAway():
            return overloaded("Files cannot be stored or read now; try again shortly.")
        case batch_jobs.contracts.InputInvalid():
            return _invalid_input(str(error))
        case batch_jobs.contracts.ModelUnknown():
            return model_not_found(str(error))
        case batch_jobs.contracts.TooMuchEnqueued():
            return ApiError(429, str(error), type="tokens", code=error.code)
    return None


def _invalid_input(message: str) -> ApiError:
    """400; a message that is about one field begins with its name and a colon."""
    param, colon, rest = message.partition(": ")
    if colon and param.isidentifier():
        return invalid(f"'{param}': {rest}", param)
    return invalid(message, None)


def _from_billing(error: billing.contracts.BillingError) -> ApiError | None:
    match error:
        case billing.contracts.UsageTooWide():
            return invalid(str(error), "group_by")
        case billing.contracts.ReceiptNotFound():
            return ApiError(404, "No such request.")
        case billing.contracts.QuotaNotFound():
            return ApiError(404, "No such limit, or none of this organization's.")
        case billing.contracts.QuotaInvalid():
            return invalid(f"'{error.param}': {error}.", error.param)
        case billing.contracts.AliasNotFound():
            return ApiError(404, "No such alias.")
        case billing.contracts.AliasExists():
            return ApiError(409, str(error), code="already_exists", param="name")
        case billing.contracts.AliasInvalid():
            return invalid(f"'{error.param}': {error}.", error.param)
    return _from_payments(error)


def _from_payments(error: billing.contracts.BillingError) -> ApiError | None:
    match error:
        case billing.contracts.AccountMissing():
            return ApiError(404, "This organization has no account.")
        case billing.contracts.TopUpNotFound() | billing.contracts.InvoiceNotFound():
            return ApiError(404, "No such object.")
        case billing.contracts.TopUpConflict():
            return idempotency_body_differs()
        case billing.contracts.TopUpUnavailable():
            return payments_unavailable()
        case billing.contracts.StripeSignatureInvalid():
            return invalid("The signature is not valid.", None, code="invalid_signature")
        case billing.contracts.StripeEventInvalid():
            return invalid("The message is too long.", None)
    return None


def _from_tenants(error: tenants.contracts.TenantError) -> ApiError | None:
    match error:
        case tenants.contracts.KeyMalformed() | tenants.contracts.KeyRejected():
            return key_invalid()
        case tenants.contracts.PermissionDenied():
            return insufficient_permissions(f"You lack the permission '{error}' here.")
        case tenants.contracts.SecondFactorMissing():
            return second_factor_required(str(error))
        case tenants.contracts.ProjectArchived():
            return project_archived()
        case tenants.contracts.retention.IdempotencyRunning():
            return idempotency_running()
        case tenants.contracts.retention.IdempotencyBodyDiffers():
            return idempotency_body_differs()
        case tenants.contracts.OrganizationSuspended():
            return organization_suspended()
        case tenants.contracts.TenantObjectNotFound():
            return ApiError(404, "No such object.")
        case tenants.contracts.TenantConflict():
            return ApiError(409, str(error), code="conflict")
        case tenants.contracts.InvitationForAnother():
            return insufficient_permissions(str(error))
        case tenants.contracts.InvalidValue():
            return invalid(f"'{error.param}': {error}", error.param)
    return None


def render_rest_exception(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Django REST framework's exception handler, in the same error shape as the token routes."""
    api_error = from_domain(error)
    if isinstance(error, tenants.contracts.LimitReached):
        metrics.LIMIT_HITS.labels(error.limit).inc()
    if isinstance(error, batch_jobs.contracts.StorageFull):
        metrics.LIMIT_HITS.labels("storage").inc()
    if api_error is None:
        match error:
            case MethodNotAllowed():
                request = context["request"]
                allowed = ", ".join(context["view"].allowed_methods)
                api_error = method_not_allowed(request.method, request.path, allowed)
            case NotAuthenticated():
                api_error = key_missing()
            case AuthenticationFailed():
                api_error = key_invalid()
            case Http404():
                api_error = ApiError(404, "No such object.")
            case APIException():
                api_error = ApiError(error.status_code, str(error.detail))
            case _:
                return None
    return Response(api_error.body(), status=api_error.status, headers=api_error.headers())
