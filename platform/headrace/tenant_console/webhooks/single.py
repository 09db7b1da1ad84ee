"""`/console/<slug>/webhooks/<id>`: an endpoint, and what became of each event sent to it.

Called by the console's routes.
"""

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.html import format_html

import tenants.facade
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.console_kit.templatetags.kit import badge
from headrace.tenant_console.webhooks.named import (
    WebhooksView,
    delivery_badge,
    endpoint_badge,
    kinds_text,
)
from tenants.contracts import Permission
from tenants.contracts.events import TooManyWebhooks, WebhookAttempt, WebhookDelivery

ROWS = 25
SUCCESS = range(200, 300)
"""Answers that take an event."""


class WebhookPage(WebhooksView):
    """One endpoint."""

    title = "Endpoint"
    writes = Permission.WEBHOOKS_WRITE
    template = "tenant_console/webhooks/webhook.html"

    def get(self, request: HttpRequest, slug: str, webhook_id: UUID) -> HttpResponse:
        """`?after=` for older deliveries."""
        endpoint = tenants.facade.webhook_endpoint(self.actor, webhook_id)
        found = tenants.facade.webhook_deliveries(
            self.actor, webhook_id, ROWS + 1, self.asked_id("after")
        )
        shown = found[:ROWS]
        next_href = ""
        if len(found) > ROWS:
            next_href = self.url("webhook", webhook_id, after=shown[-1].delivery_id)
        columns = [
            Column("Event"),
            Column("When"),
            Column("Attempts", is_number=True, hides=True),
            Column("State"),
        ]
        return self.show(
            endpoint=endpoint,
            state=endpoint_badge(endpoint),
            kinds=kinds_text(endpoint),
            is_disabled=endpoint.disabled_at is not None,
            edit_href=self.url("webhook-edit", webhook_id),
            rotate_href=self.url("webhook-rotate", webhook_id),
            back=self.url("webhooks"),
            table=Table(
                "Deliveries",
                columns,
                [self._row(one) for one in shown],
                empty="Nothing was sent there yet. Send a test event.",
                next_href=next_href,
            ),
        )

    def do_test(self, slug: str, webhook_id: UUID) -> HttpResponseBase:
        """A test event, on its way to this endpoint alone."""
        try:
            delivery = tenants.facade.send_test_event(self.actor, webhook_id)
        except TooManyWebhooks as error:
            return self.refused(f"No test event was sent: {error}")
        href = self.url("webhook-delivery", delivery.delivery_id)
        return self.said("A test event is on its way", href)

    def do_enable(self, slug: str, webhook_id: UUID) -> HttpResponseBase:
        """Sends events there again; who may be a thief proves who they are first."""
        if not self.signed_in_lately():
            return self.prove_again()
        tenants.facade.change_webhook_endpoint(self.actor, webhook_id, enabled=True)
        return self.said("Events go there from now on")

    def do_disable(self, slug: str, webhook_id: UUID) -> HttpResponseBase:
        """Sends no more events there."""
        tenants.facade.change_webhook_endpoint(self.actor, webhook_id, enabled=False)
        return self.said("No events go there any more")

    def do_delete(self, slug: str, webhook_id: UUID) -> HttpResponseBase:
        """Removes it, with its log."""
        tenants.facade.delete_webhook_endpoint(self.actor, webhook_id)
        return self.said("The endpoint is gone", self.url("webhooks"))

    def _row(self, one: WebhookDelivery) -> Row:
        cells = [
            one.kind,
            formats.age(one.created_at, self.zone, self.now),
            one.attempts,
            delivery_badge(self, one),
        ]
        return Row(cells, self.url("webhook-delivery", one.delivery_id))


class DeliveryPage(WebhooksView):
    """One event on its way to one endpoint."""

    title = "Delivery"
    writes = Permission.WEBHOOKS_WRITE
    template = "tenant_console/webhooks/delivery.html"

    def get(self, request: HttpRequest, slug: str, delivery_id: UUID) -> HttpResponse:
        """What was posted, and each answer."""
        delivery = tenants.facade.webhook_delivery(self.actor, delivery_id)
        columns = [
            Column("Attempt"),
            Column("When"),
            Column("Took", is_number=True, hides=True),
            Column("Answer"),
        ]
        return self.show(
            title=delivery.kind,
            delivery=delivery,
            event_id=f"evt_{delivery.event_id.hex}",
            state=delivery_badge(self, delivery),
            endpoint=tenants.facade.webhook_endpoint(self.actor, delivery.endpoint_id),
            payload=tenants.facade.webhook_payload(self.actor, delivery_id),
            back=self.url("webhook", delivery.endpoint_id),
            table=Table(
                "Attempts",
                columns,
                [self._row(one) for one in delivery.log],
                empty="It was not tried yet. Look again in a few seconds.",
            ),
        )

    def do_replay(self, slug: str, delivery_id: UUID) -> HttpResponseBase:
        """Delivers it again."""
        try:
            tenants.facade.replay_webhook_delivery(self.actor, delivery_id)
        except TooManyWebhooks as error:
            return self.refused(f"It is not sent again: {error}")
        return self.said("It is on its way again")

    def _row(self, one: WebhookAttempt) -> Row:
        if one.status_code is None:
            answer = badge("no answer", "red")
        else:
            answer = badge(str(one.status_code), "green" if one.status_code in SUCCESS else "red")
        return Row(
            [
                str(one.attempt),
                formats.moment(one.started_at, self.zone),
                formats.duration_text(one.latency_ms),
                format_html(
                    '{}<span class="cell-note sample-text">{}</span>',
                    answer,
                    one.error or one.answer_start,
                ),
            ]
        )
