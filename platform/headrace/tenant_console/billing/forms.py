"""What a tenant decides about its money, as forms.

A field that is left as it was changes nothing, so that two people's changes do not undo each
other. Called by the pages beside this.
"""

from dataclasses import asdict, replace
from typing import Any

from django import forms

from billing.contracts import BillingProfile, BillingSettings, RechargeSettings
from headrace.console_kit.amounts import AmountField
from headrace.console_kit.forms import KitForm

KEY_CHARS_MAX = 255
BY_TAG = "tag"
TAG_PREFIX = "tag:"


class TopUpForm(KitForm):
    """How much to pay in; `key` makes one payment of a form that is sent twice."""

    amount = AmountField()
    key = forms.CharField(max_length=KEY_CHARS_MAX, widget=forms.HiddenInput)

    def __init__(self, *args: Any, currency: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["amount"].label = f"Amount in {currency}"


class RechargeForm(KitForm):
    """When to buy credit without asking."""

    enabled = forms.BooleanField(label="Top up without asking", required=False)
    threshold = AmountField(
        label="When the balance falls below", required=False, help_text="Checked every minute."
    )
    amount = AmountField(
        label="Pay in", required=False, help_text="From the card of your last top-up."
    )
    month_max = AmountField(
        label="At most in a month",
        required=False,
        help_text="Of all automatic top-ups of a calendar month together.",
    )

    def clean(self) -> dict[str, Any]:
        """What is switched on has amounts; what is off may leave them out."""
        cleaned = super().clean() or {}
        for name in ("threshold", "amount", "month_max"):
            if cleaned.get(name) is None and name in cleaned:
                if cleaned.get("enabled"):
                    self.add_error(name, "An automatic top-up needs this amount.")
                cleaned[name] = 0
        if cleaned.get("enabled") and cleaned.get("month_max", 0) < cleaned.get("amount", 0):
            self.add_error("month_max", "A month must have room for one top-up at least.")
        return cleaned


class WarningForm(KitForm):
    """When to warn, and how invoices are split."""

    low_balance = AmountField(
        label="Warn when the balance falls below",
        required=False,
        help_text="Told once for each fall, by mail and webhook. Empty is no warning.",
    )
    group = forms.ChoiceField(
        label="Split invoice lines by",
        choices=[("", "Model and price only"), ("project", "Project"), (BY_TAG, "A tag")],
        required=False,
    )
    tag = forms.CharField(
        label="Which tag",
        max_length=64,
        required=False,
        help_text="The name of a tag that your requests carry. Only when split by a tag.",
    )

    def grouping(self) -> str:
        """As the facade calls it."""
        group = str(self.cleaned_data["group"])
        return f"{TAG_PREFIX}{self.cleaned_data['tag']}" if group == BY_TAG else group


class ProfileForm(KitForm):
    """Whom documents are addressed to."""

    legal_name = forms.CharField(max_length=200, required=False, label="Company")
    address = forms.CharField(
        max_length=500, required=False, label="Address", widget=forms.Textarea({"rows": 3})
    )
    email = forms.EmailField(max_length=254, required=False, label="E-mail for documents")
    tax_id = forms.CharField(max_length=40, required=False, label="Tax id")
    purchase_order = forms.CharField(
        max_length=80, required=False, label="Purchase order", help_text="Printed on documents."
    )

    def apply(self, profile: BillingProfile) -> BillingProfile:
        """The profile with what the form changed."""
        return replace(profile, **self.changed)


def recharge_shown(recharge: RechargeSettings) -> dict[str, Any]:
    """What a form of this rule begins with; amounts that were never set are empty."""
    return {
        "enabled": recharge.is_enabled,
        "threshold": recharge.threshold_pico or None,
        "amount": recharge.amount_pico or None,
        "month_max": recharge.month_max_pico or None,
    }


def warning_shown(found: BillingSettings) -> dict[str, Any]:
    """What a form of these settings begins with."""
    group = found.group_lines_by
    is_tag = group.startswith(TAG_PREFIX)
    return {
        "low_balance": found.low_balance_pico,
        "group": BY_TAG if is_tag else group,
        "tag": group.removeprefix(TAG_PREFIX) if is_tag else "",
    }


def profile_shown(profile: BillingProfile) -> dict[str, Any]:
    """What a form of this profile begins with."""
    return asdict(profile)
