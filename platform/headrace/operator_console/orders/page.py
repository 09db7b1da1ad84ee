"""`/operator/orders/<id>`: how one order stands, as a part of the page it was placed on.

The part asks again each second until the order has ended; then the page is shown anew. Nobody looks
at it for long.
"""

from uuid import UUID

from django.http import HttpRequest, HttpResponse

from headrace import errors
from headrace.operator_console.orders.placing import find
from headrace.operator_console.orders.shapes import Outcome
from headrace.operator_console.pages import OperatorView


class OrderPage(OperatorView):
    """The part; raises ApiError 404 for no such order."""

    page = ""
    title = "Order"
    template = "operator_console/orders/order.html"

    def get(self, request: HttpRequest, order_id: UUID) -> HttpResponse:
        """Of an order that has ended htmx is told to show the whole page."""
        order = find(self.user_id, order_id)
        if order is None:
            raise errors.ApiError(404, "No such order.")
        answer = self.show(order=order)
        if order.outcome is not Outcome.WAITING:
            answer["HX-Refresh"] = "true"
        return answer
