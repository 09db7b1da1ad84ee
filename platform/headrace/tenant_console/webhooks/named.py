"""What the pages of webhooks share. Called by the pages beside this."""

from django.utils.html import format_html
from django.utils.safestring import SafeString

from headrace.console_kit import formats
from headrace.console_kit.pages import PageView
from headrace.console_kit.templatetags.kit import badge
from tenants.contracts import Permission
from tenants.contracts.events import WebhookDelivery, WebhookEndpoint

TONES = {"pending": "yellow", "delivered": "green", "failed": "red"}


class WebhooksView(PageView):
    """A page about webhooks."""

    page = "webhooks"
    needs = Permission.WEBHOOKS_READ

    @property
    def may_write(self) -> bool:
        """Whether the viewer may change endpoints and send to them."""
        return self.may(Permission.WEBHOOKS_WRITE)


def endpoint_badge(endpoint: WebhookEndpoint) -> SafeString:
    """Whether events go there."""
    if endpoint.disabled_at is not None:
        return badge("disabled", "gray")
    if endpoint.failing_since is not None:
        return badge("failing", "red")
    return badge("enabled", "green")


def delivery_badge(view: PageView, delivery: WebhookDelivery) -> SafeString:
    """Where a delivery is, and when it is tried next."""
    state = badge(delivery.state, TONES[delivery.state])
    if delivery.next_at is None or not delivery.attempts:
        return state
    return format_html(
        '{}<span class="cell-note">next try {}</span>',
        state,
        formats.age(delivery.next_at, view.zone, view.now),
    )


def kinds_text(endpoint: WebhookEndpoint) -> str:
    """Which events go there."""
    return ", ".join(endpoint.kinds) or "all"
