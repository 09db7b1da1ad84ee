"""Django's routes: the REST views. The token routes are mounted ahead of them in `asgi`."""

from django.http import HttpRequest, JsonResponse
from django.urls import path

from headrace import errors
from headrace.management_api.receipts import ReceiptView


def not_found(request: HttpRequest, exception: Exception | None = None) -> JsonResponse:
    """404 in JSON, in the shape API clients parse."""
    error = errors.ApiError(
        404, f"Unknown request URL: {request.method} {request.path[:200]}.", code="unknown_url"
    )
    return JsonResponse(error.body(), status=404)


def server_error(request: HttpRequest) -> JsonResponse:
    """500 in JSON, without details."""
    error = errors.ApiError(500, "Internal error.", type="server_error", should_retry=True)
    return JsonResponse(error.body(), status=500, headers=error.headers())


handler404 = not_found
handler500 = server_error

urlpatterns = [
    path("v1/usage/requests/<str:request_id>", ReceiptView.as_view(), name="receipt"),
]
