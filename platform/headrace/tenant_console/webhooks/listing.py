"""`/console/<slug>/webhooks`: the endpoints, and the kinds of events they may ask for.

Called by the console's routes.
"""

from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html

import tenants.facade
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.tenant_console.webhooks.named import WebhooksView, endpoint_badge, kinds_text
from tenants.contracts import EventKind
from tenants.contracts.events import WebhookEndpoint


class WebhooksPage(WebhooksView):
    """All endpoints: at most twenty."""

    title = "Webhooks"
    template = "tenant_console/webhooks/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """The list."""
        endpoints = tenants.facade.webhook_endpoints(self.actor)
        columns = [
            Column("Endpoint"),
            Column("Events", hides=True),
            Column("Since", hides=True),
            Column("State"),
        ]
        kinds = [
            Row([format_html("<code>{}</code>", one.name), one.description])
            for one in known_kinds()
        ]
        return self.show(
            is_empty=not endpoints,
            table=Table("Endpoints", columns, [self._row(one) for one in endpoints]),
            kinds=Table("Kinds of events", [Column("Event"), Column("When")], kinds),
        )

    def _row(self, one: WebhookEndpoint) -> Row:
        name = format_html(
            '<span class="break-anywhere">{}</span><span class="cell-note">{}</span>',
            one.url,
            one.description,
        )
        cells = [
            name,
            kinds_text(one),
            formats.day_text(one.created_at, self.zone),
            endpoint_badge(one),
        ]
        href = self.url("webhook", one.endpoint_id)
        return Row(cells, href, is_muted=one.disabled_at is not None)


def known_kinds() -> list[EventKind]:
    """All kinds by name."""
    return sorted(tenants.facade.event_kinds().values(), key=lambda kind: kind.name)
