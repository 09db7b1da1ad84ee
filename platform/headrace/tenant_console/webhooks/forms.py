"""What somebody says of an endpoint, as a form. Called by the pages beside this."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.utils.html import format_html

from headrace.console_kit.forms import KitForm, wear_classes
from tenants.contracts import EventKind
from tenants.contracts.events import WebhookEndpoint

DESCRIPTION_CHARS_MAX = 120
URL_CHARS_MAX = 2048


class EndpointForm(KitForm):
    """Where to, of what."""

    url = forms.CharField(
        max_length=URL_CHARS_MAX,
        label="URL",
        widget=forms.URLInput({"placeholder": "https://example.com/hooks"}),
        help_text="Events are posted there as JSON, over https.",
    )
    description = forms.CharField(
        max_length=DESCRIPTION_CHARS_MAX, required=False, label="Description"
    )

    def __init__(self, *args: Any, known: Iterable[EventKind], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["kinds"] = forms.MultipleChoiceField(
            label="Events",
            choices=[
                (one.name, format_html("<code>{}</code> {}", one.name, one.description))
                for one in known
            ],
            widget=forms.CheckboxSelectMultiple,
            required=False,
            help_text="None ticked is all, those to come with them.",
        )
        wear_classes(self.fields["kinds"])


def shown(endpoint: WebhookEndpoint) -> dict[str, Any]:
    """What a form of this endpoint begins with."""
    return {
        "url": endpoint.url,
        "description": endpoint.description,
        "kinds": list(endpoint.kinds),
    }
