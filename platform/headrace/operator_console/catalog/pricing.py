"""`/operator/models/prices`: new prices, tried on the usage of the last 30 days, then published."""

from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse

import billing.facade
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.operator_console.catalog.forms import PriceForm, form_of
from headrace.operator_console.orders.shapes import Order, OrderKind, Outcome
from headrace.operator_console.pages import OperatorView

COLUMNS = (
    Column("Tenant"),
    Column("Model"),
    Column("Tier"),
    Column("Requests", is_number=True, hides=True),
    Column("Cost", is_number=True),
    Column("Would have cost", is_number=True),
    Column("Change", is_number=True),
)


class PricesPage(OperatorView):
    """The form; a preview is an order too, whose answer the page shows beside the form."""

    page = "models"
    title = "New prices"
    template = "operator_console/catalog/prices.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        """The form, filled in as it was tried."""
        order = self.shown_order
        again = form_of(order.asked) if order is not None and "document" in order.asked else None
        initial = again or {"model": request.GET.get("model", "")}
        return self._page(PriceForm(initial=initial, offers=billing.facade.offers()))

    def do_preview(self) -> HttpResponse:
        """Changes nothing."""
        return self._ordered(OrderKind.PREVIEW_PRICES)

    def do_publish(self) -> HttpResponse:
        """Prices change from then on; requests already held keep theirs."""
        return self._ordered(OrderKind.PUBLISH_PRICES)

    def _ordered(self, kind: OrderKind) -> HttpResponse:
        form = PriceForm(self.request.POST, offers=billing.facade.offers())
        if not form.is_valid():
            return self._page(form, HTTPStatus.UNPROCESSABLE_ENTITY)
        return self.order(kind, **form.asked)

    def _page(self, form: PriceForm, status: int = HTTPStatus.OK) -> HttpResponse:
        return self.show(status=status, form=form, preview=preview_table(self.shown_order))


def preview_table(order: Order | None) -> Table | None:
    """What a preview came to; None for any other order, and while it waits."""
    if order is None or order.kind is not OrderKind.PREVIEW_PRICES:
        return None
    if order.outcome is not Outcome.DONE:
        return None
    answer = order.answer
    currency = answer["currency"]
    rows = [
        Row(
            [
                line["tenant"],
                line["model"],
                line["tier"],
                formats.count(line["requests"]),
                *_amounts(line, currency),
            ]
        )
        for line in answer["lines"]
    ]
    return Table(
        "What would have changed",
        COLUMNS,
        rows,
        empty="Nothing would have cost more or less.",
        totals=["All usage", "", "", "", *_amounts(answer, currency)] if rows else (),
    )


def _amounts(part: Any, currency: str) -> list[object]:  # of an answer's JSON
    now_pico, draft_pico = int(part["now_pico"]), int(part["draft_pico"])
    return [
        formats.money(amount, currency) for amount in (now_pico, draft_pico, draft_pico - now_pico)
    ]
