"""What every page of ours tells the browser, and what a page says when a server behind it is away.

Load nothing from elsewhere, be framed by nobody. JSON gets the headers too: they cost nothing
there. Named in settings.
"""

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.utils.deprecation import MiddlewareMixin
from redis.exceptions import RedisError

from headrace import errors

CONTENT_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none';"
    " frame-ancestors 'none'; form-action 'self'"
)
TO_PROVIDERS = " https:"
"""Browsers hold the redirect after a form to its policy: where providers are, theirs are let in."""
TO_STRIPE = "https://checkout.stripe.com https://billing.stripe.com"
"""And Stripe's own pages, or the stand-in's, where money can be paid in."""
PERMISSIONS_POLICY = "camera=(), geolocation=(), microphone=()"


class PagePolicyMiddleware(MiddlewareMixin):
    """Adds Content-Security-Policy, X-Frame-Options and Permissions-Policy to every answer."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Keeps what a view has set."""
        policy = CONTENT_POLICY
        if any(one["APPS"] for one in settings.SOCIALACCOUNT_PROVIDERS.values()):
            policy += TO_PROVIDERS
        if settings.STRIPE_API_KEY:
            policy += f" {settings.STRIPE_API_BASE or TO_STRIPE}"
        response.headers.setdefault("Content-Security-Policy", policy)
        response.headers.setdefault("X-Frame-Options", "DENY")
        response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        return response


class KnownFaultsMiddleware(MiddlewareMixin):
    """Renders a typed error of a plain Django view as the REST views do; others stay 500."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> JsonResponse | None:
        """503 without Redis: nobody may try passwords that nobody counts."""
        if isinstance(exception, RedisError):
            known: errors.ApiError | None = errors.overloaded("Sign-in is away; try again shortly.")
        else:
            known = errors.from_domain(exception)
        if known is None:
            return None
        return JsonResponse(known.body(), status=known.status, headers=known.headers())
