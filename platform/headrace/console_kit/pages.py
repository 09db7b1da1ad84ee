"""What every page of a tenant does before its own work.

It finds out who looks at which organization, asks the permission that the page names, and shows
errors as pages. A page never looks at roles, and never takes an organization from anywhere but
`self.actor`. The tenant console's pages are made of it.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, ClassVar
from urllib.parse import urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

from allauth.account.authentication import get_authentication_records
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.middleware.gzip import GZipMiddleware
from django.shortcuts import render
from django.urls import reverse
from django.utils.decorators import decorator_from_middleware, method_decorator
from django.utils.functional import cached_property
from django.views import View

import billing.facade
import tenants.facade
from headrace import errors
from headrace.console_kit.navigation import seen_by
from headrace.request_origin import address_of, request_id_of
from headrace.request_rates import count_actor
from headrace.sign_in.second_factors import has_second_factor
from tenants.contracts import (
    Actor,
    MemberOf,
    OrganizationNotFound,
    OrganizationSettings,
    Permission,
    PermissionDenied,
    ProjectInfo,
    SecondFactorMissing,
)

SEE_OTHER = 303
READS = frozenset({"GET", "HEAD"})
NOT_KEPT = "no-store, private"
"""Who comes to a browser after somebody signed out finds nothing by going back."""
NUL = "%00"
"""No text in the database has it."""


class PageCompression(GZipMiddleware):
    """Of whole pages: the library packs each part of a stream by itself, which clients misread."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """A download goes out as it is."""
        if response.streaming:
            return response
        return super().process_response(request, response)


# Pages hold no secret beside what a visitor sends; their tokens are masked anew each time.
@method_decorator(decorator_from_middleware(PageCompression), name="dispatch")
class SignedInView(View):
    """A page for somebody who is signed in. Errors that have a status become pages."""

    def dispatch(
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:  # the address's own parts
        """The page, which no browser keeps; raises what has no page of its own."""
        answer = self._answer(request, *args, **kwargs)
        answer.headers.setdefault("Cache-Control", NOT_KEPT)
        return answer

    def _answer(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Sign-in first, then the page."""
        if not request.user.is_authenticated:
            return redirect_to_login(request.get_full_path())
        try:
            count_actor(self.user_id, request.method or "")
            _check_address(request)
            self.prepare()
            return super().dispatch(request, *args, **kwargs)
        except SecondFactorMissing as error:
            messages.warning(request, str(error))
            return HttpResponseRedirect(reverse("mfa_index"))
        except Exception as error:  # a process edge: what has a status is shown, the rest is raised
            known = errors.from_domain(error)
            if known is None:
                raise
            return error_page(request, known)

    def prepare(self) -> None:
        """Before the method's handler: who, where, whether."""

    @property
    def user_id(self) -> UUID:
        """Of who is signed in."""
        user_id = self.request.user.pk
        assert isinstance(user_id, UUID)
        return user_id

    @property
    def is_partial(self) -> bool:
        """Whether htmx asks for a part of the page."""
        return self.request.headers.get("hx-request") == "true"

    def signed_in_lately(self) -> bool:
        """Whether the person has proved who they are lately enough for a sensitive act."""
        proofs = get_authentication_records(self.request, self.request.user)
        at = max((proof["at"] for proof in proofs), default=0.0)
        return bool(time.time() - at <= settings.ACCOUNT_REAUTHENTICATION_TIMEOUT)

    def prove_again(self) -> HttpResponse:
        """Asks for the password or a second factor, then comes back to this page."""
        back = urlencode({"next": self.request.get_full_path()})
        return self.go(f"{reverse('account_reauthenticate')}?{back}")

    def go(self, href: str) -> HttpResponse:
        """To another page, after a form; htmx is told to go there as a whole."""
        if self.is_partial:
            return HttpResponse(status=204, headers={"HX-Redirect": href})
        return HttpResponseRedirect(href, status=SEE_OTHER)


class RailView(SignedInView):
    """A page of a rail, of either console; its forms name what they do.

    A page with `is_sensitive` forms asks for a recent sign-in before it does what they say.
    """

    page: ClassVar[str]
    """The route's name, marked in the rail."""
    title: ClassVar[str]
    is_sensitive: ClassVar[bool] = False
    template: ClassVar[str]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """One moment for all that a page says of time."""
        self.now = datetime.now(UTC)
        return super().dispatch(request, *args, **kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """`do=<verb>` of the form names the method `do_<verb>` that answers it."""
        verb = request.POST.get("do", "")
        handler: Callable[..., HttpResponseBase] | None = getattr(self, f"do_{verb}", None)
        if not verb.isidentifier() or handler is None:
            raise errors.invalid("There is no such action here.", "do")
        if self.is_sensitive and not self.signed_in_lately():
            return self.prove_again()
        return handler(*args, **kwargs)

    def asked_id(self, name: str) -> UUID | None:
        """An id of the query string; raises ApiError 400 for what is none."""
        text = self.request.GET.get(name)
        return _parsed_id(text, name) if text else None

    def posted_id(self, name: str) -> UUID:
        """An id that a form sent; raises ApiError 400 for what is none."""
        return _parsed_id(self.request.POST.get(name, ""), name)

    def said(self, text: str, href: str = "") -> HttpResponse:
        """After an action: a toast, and the page again (or another)."""
        messages.success(self.request, text)
        return self.go(href or self.request.get_full_path())

    def refused(self, text: str, href: str = "") -> HttpResponse:
        """An action that could not be done: why, and the page again."""
        messages.error(self.request, text)
        return self.go(href or self.request.get_full_path())


class PageView(RailView):
    """A page under `/console/<slug>/`: an organization that is not the viewer's is 404.

    `needs` is asked of everybody, `writes` of who sends a form.
    """

    needs: ClassVar[Permission]
    writes: ClassVar[Permission | None] = None
    actor: Actor
    membership: MemberOf

    def prepare(self) -> None:
        """Finds the actor; raises OrganizationNotFound, PermissionDenied, SecondFactorMissing."""
        slug = self.kwargs["slug"]
        self.memberships = tenants.facade.memberships_of(self.user_id)
        found = [one for one in self.memberships if one.organization.slug == slug]
        if not found:
            raise OrganizationNotFound("no such organization")
        [self.membership] = found
        self.actor = tenants.facade.actor_for_user(
            self.user_id,
            self.membership.organization.organization_id,
            address_of(self.request),
            request_id_of(self.request),
            has_second_factor=has_second_factor(self.user_id),
        )
        self.actor.require(self.needs)
        if self.request.method not in READS:
            if self.writes is None:
                raise PermissionDenied(self.needs)
            self.actor.require(self.writes)

    def may(self, permission: Permission) -> bool:
        """Whether the viewer may do this here."""
        return permission in self.actor.permissions

    def url(self, route: str, *args: object, **query: object) -> str:
        """A page of this organization; a filter of None or '' is left out."""
        path = reverse(f"console:{route}", args=(self.membership.organization.slug, *args))
        asked = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{path}?{urlencode(asked, doseq=True)}" if asked else path

    def link(self, route: str) -> str:
        """A page of the rail for who may open it; '' for others."""
        seen = {entry.route for entry in seen_by(self.actor.permissions)}
        return self.url(route) if route in seen else ""

    @property
    def live_path(self) -> str:
        """Where the socket of this organization's live pages is."""
        return f"{self.url('overview')}live"

    @property
    def organization_id(self) -> UUID:
        """Whose page this is."""
        return self.actor.organization_id

    @property
    def currency(self) -> str:
        """Of all its money."""
        return self.membership.organization.currency

    @cached_property
    def organization(self) -> OrganizationSettings:
        """Its settings."""
        return tenants.facade.read_organization(self.actor)

    @cached_property
    def is_demo(self) -> bool:
        """Whether its usage is made up."""
        return billing.facade.is_demo(self.organization_id)

    @cached_property
    def zone(self) -> ZoneInfo:
        """Where its days begin."""
        return ZoneInfo(self.organization.time_zone)

    @cached_property
    def projects(self) -> list[ProjectInfo]:
        """All that are not archived."""
        return tenants.facade.list_projects(self.actor)

    @cached_property
    def project(self) -> ProjectInfo | None:
        """The one that the address's `project` names; raises ApiError 404 for one that is not."""
        asked = self.request.GET.get("project")
        if not asked:
            return None
        for project in self.projects:
            if str(project.project_id) == asked:
                return project
        raise errors.ApiError(404, "No such project.")

    def show(self, template: str = "", status: int = HTTPStatus.OK, **context: Any) -> HttpResponse:
        """The page, or a part of it where `template` says so."""
        return render(
            self.request,
            template or self.template,
            {
                "view": self,
                "title": self.title,
                "page": self.page,
                "rail": [(one, self.url(one.route)) for one in seen_by(self.actor.permissions)],
                "zone": self.zone,
                "now": self.now,
                "currency": self.currency,
                **context,
            },
            status=status,
        )


def _check_address(request: HttpRequest) -> None:
    if NUL in request.META["QUERY_STRING"]:
        raise errors.invalid("An address has no NUL in it.", None)


def _parsed_id(text: str, name: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise errors.invalid(f"'{name}' must be an id.", name) from None


def error_page(request: HttpRequest, error: errors.ApiError) -> HttpResponse:
    """What happened, what to do, and the request's id; for htmx a toast."""
    request_id = request_id_of(request)
    template = "kit/error_part.html" if request.headers.get("hx-request") else "kit/error.html"
    title = HTTPStatus(error.status).phrase
    context = {"error": error, "request_id": request_id, "title": title}
    page = render(request, template, context, status=error.status)
    for name, value in error.headers().items():
        page[name] = value
    return page
