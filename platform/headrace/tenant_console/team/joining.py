"""`/console/invitation`: where the link of an invitation's mail leads.

The token comes behind the #, so that no server's log and no referrer holds it; the page hands it
over in a form, and a cookie that no script reads keeps it while somebody signs up. Whoever holds
the token sees what it offers; joining is for who has signed in. Called by the console's routes.
"""

from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache

import tenants.facade
from headrace.console_kit.pages import SEE_OTHER
from headrace.request_origin import address_of, request_id_of
from tenants.contracts import InvitationForAnother, InvitationNotFound

COOKIE = "headrace-invitation"
COOKIE_AGE_S = 24 * 3600
"""How long somebody may take to sign up; the mail's link works longer."""
COOKIE_PATH = "/console/"


@method_decorator(never_cache, name="dispatch")
class InvitationPage(View):
    """What is offered, and taking it."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """The offer of the token that was handed over; else the form that hands one over."""
        token = request.COOKIES.get(COOKIE)
        if not token:
            return self._page()
        try:
            offer = tenants.facade.invitation_offer(token)
        except InvitationNotFound:
            return self._forget(self._closed())
        address = request.user.email if request.user.is_authenticated else ""
        return self._page(offer=offer, address=address)

    def post(self, request: HttpRequest) -> HttpResponseBase:
        """`do=open` hands a token over, `do=accept` joins, `do=forget` is for the wrong link."""
        match request.POST.get("do"):
            case "open":
                return self._open(request.POST.get("token", "").strip().rpartition("#")[2])
            case "accept" if request.user.is_authenticated:
                return self._accept(request.COOKIES.get(COOKIE, ""))
            case _:
                return self._forget(HttpResponseRedirect(reverse("console:home"), status=SEE_OTHER))

    def _open(self, token: str) -> HttpResponse:
        try:
            tenants.facade.invitation_offer(token)
        except InvitationNotFound:
            return self._forget(self._closed())
        answer = HttpResponseRedirect(reverse("console:invitation"), status=SEE_OTHER)
        answer.set_cookie(
            COOKIE,
            token,
            max_age=COOKIE_AGE_S,
            path=COOKIE_PATH,
            secure=settings.SESSION_COOKIE_SECURE,
            httponly=True,
            samesite="Lax",
        )
        return answer

    def _accept(self, token: str) -> HttpResponse:
        request = self.request
        user_id = request.user.pk
        assert request.user.is_authenticated
        assert isinstance(user_id, UUID)
        try:
            organization_id = tenants.facade.accept_invitation(
                user_id, token, address_of(request), request_id_of(request)
            )
        except InvitationNotFound:
            return self._forget(self._closed())
        except InvitationForAnother:
            offer = tenants.facade.invitation_offer(token)
            status = HTTPStatus.FORBIDDEN
            return self._page(status, offer=offer, address=request.user.email, is_for_another=True)
        mine = tenants.facade.memberships_of(user_id)
        joined = [one for one in mine if one.organization.organization_id == organization_id]
        messages.success(request, f"Welcome to {joined[0].organization.display_name}")
        href = reverse("console:overview", args=(joined[0].organization.slug,))
        return self._forget(HttpResponseRedirect(href, status=SEE_OTHER))

    def _closed(self) -> HttpResponse:
        return self._page(HTTPStatus.NOT_FOUND, is_closed=True)

    def _forget(self, answer: HttpResponse) -> HttpResponse:
        answer.delete_cookie(COOKIE, path=COOKIE_PATH)
        return answer

    def _page(self, status: int = HTTPStatus.OK, **context: Any) -> HttpResponse:
        title = {"title": "Invitation"}
        template = "tenant_console/team/invitation.html"
        return render(self.request, template, title | context, status=status)
