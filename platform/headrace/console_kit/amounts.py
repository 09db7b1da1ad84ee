"""Fields for amounts of money: decimals as people write them in, pico-units out.

Never a float in between. Called by forms of pages.
"""

import re
from typing import Any

from django import forms

from billing.facade import decimal_string, parse_decimal

AMOUNT = re.compile(r"\d{1,12}(\.\d{1,12})?", re.ASCII)
AMOUNT_CHARS_MAX = 25


class AmountField(forms.CharField):
    """An amount in units of the organization's currency, cleaned to pico-units; '' is None."""

    def __init__(self, **kwargs: Any) -> None:
        widget = forms.TextInput({"inputmode": "decimal", "autocomplete": "off"})
        super().__init__(max_length=AMOUNT_CHARS_MAX, widget=widget, **kwargs)

    def clean(self, value: Any) -> Any:
        """Raises ValidationError for what is no amount."""
        text = super().clean(value)
        if not text:
            return None
        if not AMOUNT.fullmatch(text):
            raise forms.ValidationError("Write an amount such as 20 or 12.50, without a sign.")
        return parse_decimal(text)

    def prepare_value(self, value: Any) -> Any:
        """As the control shows it."""
        return decimal_string(value) if isinstance(value, int) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compares amounts, not how they are written."""
        try:
            return bool(self.clean(data) != initial)
        except forms.ValidationError:
            return True
