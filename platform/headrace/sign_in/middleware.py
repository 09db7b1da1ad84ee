"""What every page of ours tells the browser: load nothing from elsewhere, be framed by nobody.

A view that needs more sets the header itself and keeps it. JSON gets the headers too: they cost
nothing there.
"""

from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

CONTENT_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none';"
    " form-action 'self'; frame-ancestors 'none'"
)

PERMISSIONS_POLICY = "camera=(), geolocation=(), microphone=()"


class PagePolicyMiddleware(MiddlewareMixin):
    """Adds Content-Security-Policy, X-Frame-Options and Permissions-Policy to every answer."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Keeps what a view has set."""
        response.headers.setdefault("Content-Security-Policy", CONTENT_POLICY)
        response.headers.setdefault("X-Frame-Options", "DENY")
        response.headers.setdefault(
            "Permissions-Policy", "camera=(), geolocation=(), microphone=()"
        )
        return response
