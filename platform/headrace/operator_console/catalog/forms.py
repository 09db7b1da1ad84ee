"""Forms of models and prices. Prices are read as decimals and never as floats."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django import forms

import tenants.facade
from billing.contracts import Offer, ServiceTier, TokenClass
from billing.facade import parse_per_million, per_million_string
from headrace.console_kit.forms import KitForm, MomentField, choices_of
from headrace.founding import CURRENCIES
from headrace.operator_console.pages import ZONE

PRICE_CHARS_MAX = 25
NOTE_CHARS_MAX = 500
SLUG_CHARS_MAX = 63
CLASS_LABELS = {
    TokenClass.INPUT: "Input",
    TokenClass.CACHED_INPUT: "Cached input",
    TokenClass.CACHE_WRITE: "Cache write",
    TokenClass.OUTPUT: "Output",
}


class PriceField(forms.CharField):
    """A price per million tokens, cleaned to micro-units; '' is None."""

    def __init__(self, **kwargs: Any) -> None:
        widget = forms.TextInput({"inputmode": "decimal", "autocomplete": "off"})
        super().__init__(
            max_length=PRICE_CHARS_MAX, required=False, widget=widget, strip=True, **kwargs
        )

    def clean(self, value: Any) -> Any:
        """Raises ValidationError for what is no price."""
        text = super().clean(value)
        if not text:
            return None
        try:
            return parse_per_million(text)
        except ValueError as error:
            raise forms.ValidationError(f"This is no price: {error}.") from error


class PriceForm(KitForm):
    """New prices of one model and tier, of the list or of one tenant."""

    model = forms.ChoiceField()
    tier = forms.ChoiceField(choices=choices_of(tier.value for tier in ServiceTier))
    currency = forms.ChoiceField(choices=choices_of(CURRENCIES))
    input = PriceField(label=CLASS_LABELS[TokenClass.INPUT])
    cached_input = PriceField(label=CLASS_LABELS[TokenClass.CACHED_INPUT])
    cache_write = PriceField(label=CLASS_LABELS[TokenClass.CACHE_WRITE])
    output = PriceField(label=CLASS_LABELS[TokenClass.OUTPUT])
    tenant = forms.CharField(
        max_length=SLUG_CHARS_MAX,
        required=False,
        label="Only for",
        help_text="A tenant's slug. Empty is the list, which is everybody's.",
    )
    note = forms.CharField(max_length=NOTE_CHARS_MAX, required=False)
    accept_warnings = forms.BooleanField(
        required=False, label="Publish what looks odd too", help_text="As ten times the old price."
    )

    def __init__(self, *args: Any, offers: Sequence[Offer], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        model = self.fields["model"]
        assert isinstance(model, forms.ChoiceField)
        model.choices = choices_of(offer.public_id for offer in offers)
        begins = MomentField(ZONE, label="From", required=False)
        begins.help_text = "UTC. Empty is at once; prices never change in the past."
        begins.widget.attrs["class"] = "form-control"
        self.fields["effective_at"] = begins

    def clean_tenant(self) -> str:
        """The tenant's id, or ''; raises ValidationError for nobody's slug."""
        slug = self.cleaned_data["tenant"]
        if not slug:
            return ""
        found = tenants.facade.organization_by_slug(slug)
        if found is None:
            raise forms.ValidationError("No tenant has this slug.")
        return str(found.organization_id)

    def clean(self) -> dict[str, Any]:
        """Raises ValidationError where no price is named."""
        cleaned = super().clean() or self.cleaned_data
        classes = [one.value for one in TokenClass]
        if not set(classes) & set(self.errors) and not any(
            cleaned.get(one) is not None for one in classes
        ):
            raise forms.ValidationError("Write at least one price.")
        return cleaned

    @property
    def asked(self) -> dict[str, object]:
        """As an order for a worker."""
        cleaned = self.cleaned_data
        prices = {
            one.value: per_million_string(cleaned[one.value])
            for one in TokenClass
            if cleaned[one.value] is not None
        }
        document = {
            "currency": cleaned["currency"],
            "note": cleaned["note"],
            "prices": {cleaned["model"]: {cleaned["tier"]: prices}},
        }
        effective_at = cleaned["effective_at"]
        return {
            "document": json.dumps(document),
            "organization_id": cleaned["tenant"],
            "tenant": self.data.get("tenant", "").strip(),
            "effective_at": effective_at.isoformat() if effective_at else None,
            "accept_warnings": cleaned["accept_warnings"],
        }


def form_of(asked: Mapping[str, Any]) -> dict[str, object]:
    """What the form says again that was ordered before."""
    document = json.loads(asked["document"])
    [(model, tiers)] = document["prices"].items()
    [(tier, prices)] = tiers.items()
    return {
        "model": model,
        "tier": tier,
        "currency": document["currency"],
        "note": document["note"],
        "tenant": asked["tenant"],
        **prices,
    }


class LifeForm(KitForm):
    """When a model goes, and what to use instead."""

    model = forms.ChoiceField()
    successor = forms.ChoiceField(required=False)

    def __init__(self, *args: Any, offers: Sequence[Offer], **kwargs: Any) -> None:
        kwargs.setdefault("auto_id", "life_%s")
        super().__init__(*args, **kwargs)
        names = choices_of(offer.public_id for offer in offers)
        for field, choices in (("model", names), ("successor", [("", "none"), *names])):
            control = self.fields[field]
            assert isinstance(control, forms.ChoiceField)
            control.choices = choices
        ends = MomentField(ZONE, label="Served until", required=False)
        ends.help_text = "UTC. Empty takes an announced end back."
        ends.widget.attrs["class"] = "form-control"
        self.fields["shutdown_at"] = ends
