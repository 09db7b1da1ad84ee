"""`/console/<slug>/`: at a glance, what is spent and used, how fast, and what needs attention.

Reads sums only, never single events. Called by the console's routes.
"""

from django.http import HttpRequest, HttpResponse

from headrace.console_kit.pages import PageView
from tenants.contracts import Permission


class OverviewPage(PageView):
    """The first page of an organization."""

    page = "overview"
    title = "Overview"
    needs = Permission.USAGE_READ
    template = "tenant_console/overview/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """Numbers of the month and of today."""
        return self.show()
