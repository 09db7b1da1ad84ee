"""Forms of what the operator sets of a tenant. They check shape; the facades say what may be."""

from typing import Any
from zoneinfo import ZoneInfo

from django import forms

from billing.contracts import GrantCategory
from headrace.console_kit.amounts import AmountField
from headrace.console_kit.forms import KitForm, MomentField, limit_fields

REFERENCE_CHARS_MAX = 100


class GrantForm(KitForm):
    """Credit, once per reference."""

    amount = AmountField(label="Amount")
    reference = forms.CharField(
        max_length=REFERENCE_CHARS_MAX, help_text="An invoice or a ticket; each counts once."
    )
    category = forms.ChoiceField(
        choices=[
            (GrantCategory.PROMOTIONAL.value, "A gift"),
            (GrantCategory.PAID.value, "Money that was received"),
        ],
        label="What it is",
    )

    def __init__(self, *args: Any, zone: ZoneInfo, **kwargs: Any) -> None:
        kwargs.setdefault("auto_id", "grant_%s")
        super().__init__(*args, **kwargs)
        self.fields["expires_at"] = MomentField(zone, label="Ends", required=False)
        self.fields["expires_at"].widget.attrs["class"] = "form-control"
        self.fields["expires_at"].help_text = "UTC. Empty is never."

    def clean_amount(self) -> int:
        """Raises ValidationError for nothing."""
        amount_pico: int = self.cleaned_data["amount"]
        if not amount_pico:
            raise forms.ValidationError("Grant more than nothing.")
        return amount_pico


class CreditLimitForm(KitForm):
    """How far the balance may go below zero."""

    limit = AmountField(label="May owe", help_text="0 is prepaid.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("auto_id", "owe_%s")
        super().__init__(*args, **kwargs)


class TenantLimitsForm(KitForm):
    """The organization's minute limits; what is empty stays as it is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("auto_id", "tenant_%s")
        super().__init__(*args, **kwargs)
        self.fields |= limit_fields()
        for field in self.fields.values():
            field.widget.attrs["class"] = "form-control"
