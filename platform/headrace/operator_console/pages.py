"""What every page of the operator does before its own work: it is there for staff only.

Somebody else, or a request by another Host than the operator's, gets what an address that does not
exist gets; of the staff a second factor is demanded. Reads of all tenants go through functions of
the database that ask the same again. The operator console's pages are made of it.
"""

import json
from typing import Any
from urllib.parse import urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from uuid_utils.compat import uuid7

import tenants.facade
from headrace import errors
from headrace.console_kit.navigation import OPERATOR
from headrace.console_kit.operator_host import is_operators
from headrace.console_kit.pages import RailView
from headrace.operator_console.orders.placing import TooManyWaiting, find, place
from headrace.operator_console.orders.shapes import Order, OrderKind, Placed
from headrace.request_origin import address_of, request_id_of
from headrace.sign_in.second_factors import has_second_factor
from tenants.contracts import Actor, SecondFactorMissing

ZONE = ZoneInfo("UTC")
"""The operator's days are the house's; a tenant's own are said where they are meant."""


class OperatorView(RailView):
    """A page under `/operator/`."""

    is_sensitive = True
    shown_order: Order | None
    """What was ordered on this page a moment ago."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Raises Http404 for everybody but staff, and on any other Host."""
        if not is_operators(request.get_host()) or not getattr(request.user, "is_staff", False):
            raise Http404
        return super().dispatch(request, *args, **kwargs)

    def prepare(self) -> None:
        """Raises SecondFactorMissing, which leads to where one is added."""
        if not has_second_factor(self.user_id):
            raise SecondFactorMissing("The operator's pages want a second factor. Add one first.")
        # Before everything else that the page reads: what an order has changed is then there too.
        self.shown_order = self._asked_order()

    def actor_in(self, organization_id: UUID) -> Actor:
        """The operator in one tenant, as this person at this address."""
        return tenants.facade.operator_of(
            organization_id, self.user_id, address_of(self.request), request_id_of(self.request)
        )

    def url(self, route: str, *args: object, **query: object) -> str:
        """A page of the operator; a filter of None or '' is left out."""
        path = reverse(f"operator:{route}", args=args)
        asked = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{path}?{urlencode(asked, doseq=True)}" if asked else path

    @property
    def new_order_id(self) -> UUID:
        """For a form, so that sending it twice orders once."""
        return uuid7()

    def order(self, kind: OrderKind, **asked: object) -> HttpResponse:
        """Leaves it to a worker; the page again, which shows what comes of it."""
        placed = Placed(
            self.posted_id("order_id"),
            self.user_id,
            address_of(self.request),
            request_id_of(self.request),
            kind.value,
            json.dumps(asked),
        )
        try:
            place(placed)
        except TooManyWaiting:
            return self.refused("Too many orders wait: no worker carries them out.")
        return self.go(f"{self.request.path}?{urlencode({'order': placed.order_id})}")

    def _asked_order(self) -> Order | None:
        """The one that the address names; raises ApiError 404 for one that is not."""
        order_id = self.asked_id("order")
        if order_id is None:
            return None
        found = find(self.user_id, order_id)
        if found is None:
            raise errors.ApiError(404, "No such order.")
        return found

    @property
    def live_path(self) -> str:
        """Where the socket of the operator's live pages is."""
        return f"{reverse('operator:fleet')}live"

    def show(self, template: str = "", status: int = 200, **context: Any) -> HttpResponse:
        """The page, or a part of it where `template` says so."""
        return render(
            self.request,
            template or self.template,
            {
                "view": self,
                "title": self.title,
                "page": self.page,
                "rail": [(one, self.url(one.route)) for one in OPERATOR],
                "zone": ZONE,
                "now": self.now,
                "currency": "",
                **context,
            },
            status=status,
        )
