"""`/console/`: where somebody lands who has signed in.

Goes to their organization, to the invitation they came for, or lets them found one. Founds nothing
without being asked.
"""

from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

import tenants.facade
from headrace.console_kit.pages import SignedInView
from headrace.founding import CURRENCIES, found
from headrace.request_origin import address_of, request_id_of
from headrace.tenant_console.team.joining import COOKIE
from tenants.contracts import InvalidValue, TenantConflict

DISPLAY_NAME_CHARS_MAX = 120


class HomePage(SignedInView):
    """The first organization of a person, or the form to found one."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Redirects members; shows the form to others, and to who asks for `?new`."""
        memberships = tenants.facade.memberships_of(self.user_id)
        if not memberships and COOKIE in request.COOKIES:
            return self.go(reverse("console:invitation"))
        if memberships and "new" not in request.GET:
            return self.go(reverse("console:overview", args=(memberships[0].organization.slug,)))
        return self._form()

    def post(self, request: HttpRequest) -> HttpResponse:
        """Founds one, then goes there."""
        name = request.POST.get("display_name", "").strip()
        currency = request.POST.get("currency", "")
        error = ""
        if not 0 < len(name) <= DISPLAY_NAME_CHARS_MAX:
            error = f"Give it a name of at most {DISPLAY_NAME_CHARS_MAX} characters."
        elif currency not in CURRENCIES:
            error = "Choose one of the currencies."
        else:
            try:
                made = found(
                    self.user_id, name, currency, address_of(request), request_id_of(request)
                )
            except (TenantConflict, InvalidValue) as refusal:
                error = str(refusal)
            else:
                return self.go(reverse("console:overview", args=(made.organization.slug,)))
        return self._form(HTTPStatus.UNPROCESSABLE_ENTITY, error=error, name=name)

    def _form(self, status: int = HTTPStatus.OK, **context: Any) -> HttpResponse:
        return render(
            self.request,
            "tenant_console/home.html",
            {"title": "Your organization", "currencies": CURRENCIES, **context},
            status=status,
        )
