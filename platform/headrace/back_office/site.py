"""The site of the back office: its door, and the one way in which tables are registered.

For staff with a second factor; nobody else learns what is here, and nobody sends anything. Each
look is logged with who, where from and at what, without the query. Django makes it `admin.site`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import structlog
from django.contrib import messages
from django.contrib.admin import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.db.models import Model
from django.http import (
    Http404,
    HttpRequest,
    HttpResponseBase,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.urls import URLPattern, URLResolver, reverse

from headrace.back_office.tables import ReadOnlyTable
from headrace.request_origin import address_of, request_id_of
from headrace.request_rates import count_actor
from headrace.sign_in.second_factors import has_second_factor

View = Callable[..., HttpResponseBase]
READS = ("GET", "HEAD")
PAGES = frozenset({"index", "app_list"})
"""Addresses beside the tables' own, by name: sign-in and passwords are not the admin's."""

log = structlog.get_logger(__name__)


class BackOfficeSite(AdminSite):
    """Whatever is registered here is read only."""

    site_header = "Headrace back office: read only"
    site_title = "Headrace back office"
    index_title = "Tables as they are stored"
    site_url = None
    final_catch_all_view = False

    def register(  # type: ignore[override]  # takes no class: nothing of ours can be loosened
        self,
        model_or_iterable: type[Model] | Iterable[type[Model]],
        *,
        list_display: Sequence[str],
        list_filter: Sequence[str] = (),
        search_fields: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> None:
        """A table: its list's columns, what it is filtered and searched by, what is not shown."""
        super().register(
            model_or_iterable,
            ReadOnlyTable,
            list_display=list_display,
            list_filter=list_filter,
            search_fields=search_fields,
            exclude=exclude,
        )

    def get_urls(self) -> list[URLPattern | URLResolver]:
        """The index, and the tables."""
        every = super().get_urls()
        return [one for one in every if isinstance(one, URLResolver) or one.name in PAGES]

    def admin_view(self, view: View, cacheable: bool = False) -> View:  # type: ignore[override]
        """Every page of the site goes through this: who looks, and that they only look."""
        inner = super().admin_view(view, cacheable)

        @wraps(inner)
        def entered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            user = request.user
            if not user.is_authenticated:
                return redirect_to_login(request.get_full_path())
            if not getattr(user, "is_staff", False):
                raise Http404
            if not has_second_factor(user.pk):
                messages.warning(request, "The back office wants a second factor. Add one first.")
                return HttpResponseRedirect(reverse("mfa_index"))
            count_actor(user.pk, request.method or "")
            if request.method not in READS:
                return HttpResponseNotAllowed(READS)
            log.info(
                "the back office was looked at",
                user_id=str(user.pk),
                address=address_of(request),
                path=request.path,
                request_id=str(request_id_of(request)),
            )
            return inner(request, *args, **kwargs)

        return entered
