"""`/operator/`: the engines, live. Shows what they report every second, and nothing from before."""

from django.http import HttpRequest, HttpResponse

from headrace.operator_console.pages import OperatorView


class FleetPage(OperatorView):
    """The page; its parts come by the socket."""

    page = "fleet"
    title = "Fleet"
    template = "operator_console/fleet/page.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        """Unknown until the socket tells."""
        return self.show(engine_reports=None)
