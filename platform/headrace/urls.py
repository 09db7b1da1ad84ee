"""Django's routes: the REST views. The token routes are mounted ahead of them in `asgi`."""

from django.http import HttpRequest, JsonResponse
from django.urls import include, path

from headrace import errors
from headrace.management_api.money.stripe_webhook import StripeEventsView
from headrace.management_api.usage.receipts import ReceiptView
from headrace.static_files import static_file


def bad_request(request: HttpRequest, exception: Exception | None = None) -> JsonResponse:
    """400 in JSON: a host name we do not answer to, or a request Django will not parse."""
    return _json(errors.host_unknown())


def not_found(request: HttpRequest, exception: Exception | None = None) -> JsonResponse:
    """404 in JSON, in the shape API clients parse."""
    return _json(errors.unknown_url(request.method or "", request.path))


def csrf_failure(request: HttpRequest, reason: str = "") -> JsonResponse:
    """403 in JSON: a form that another site may have sent."""
    return _json(errors.csrf_failed())


def server_error(request: HttpRequest) -> JsonResponse:
    """500 in JSON, without details."""
    return _json(errors.engine_failed("Internal error."))


def _json(error: errors.ApiError) -> JsonResponse:
    return JsonResponse(error.body(), status=error.status, headers=error.headers())


handler400 = bad_request
handler404 = not_found
handler500 = server_error

urlpatterns = [
    path("accounts/", include("allauth.urls")),
    path("static/<path:path>", static_file, name="static"),
    path("console/", include("headrace.tenant_console.urls")),
    path("operator/", include("headrace.operator_console.urls")),
    path("stripe/events", StripeEventsView.as_view(), name="stripe-events"),
    path("v1/usage/requests/<str:request_id>", ReceiptView.as_view(), name="receipt"),
    path("", include("headrace.management_api.urls")),
]
