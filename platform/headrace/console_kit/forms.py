"""Forms of pages: their fields look alike, and what a facade refuses is said beside its field.

Checks shape only; what may be is the facade's to say. Drawn by the tags `fields` and `field`.
Called by pages.
"""

import re
from collections.abc import Iterable
from dataclasses import asdict, fields
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.utils import timezone

from tenants.contracts import InvalidValue, MinuteLimits

LIMIT_MAX = 2**31 - 1
MINUTE_FORMAT = "%Y-%m-%dT%H:%M"
YEARS = range(2000, 2200)
LIST_CHARS_MAX = 8_000
"""Of a field that takes one thing a line."""
LIMIT_LABELS = {
    "requests_max": "Requests per minute",
    "tokens_max": "Tokens per minute",
    "input_tokens_max": "Input tokens per minute",
    "output_tokens_max": "Output tokens per minute",
    "concurrent_max": "Requests at once",
}


class KitForm(forms.Form):
    """A form whose controls have the kit's classes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("label_suffix", "")
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            wear_classes(field)

    def refuse(self, error: InvalidValue) -> None:
        """Says beside the field at fault why the facade did not take it; else above the form."""
        name = error.param.replace(".", "_")
        text = str(error)
        sentence = f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."
        self.add_error(name if name in self.fields else None, sentence)

    @property
    def changed(self) -> dict[str, Any]:
        """The cleaned fields that differ from what the form began with."""
        return {name: self.cleaned_data[name] for name in self.changed_data}


def wear_classes(field: forms.Field) -> None:
    """Gives a control the class that its kind has in the kit."""
    widget = field.widget
    if isinstance(widget, forms.CheckboxInput | forms.CheckboxSelectMultiple | forms.RadioSelect):
        widget.attrs.setdefault("class", "form-check-input")
    elif isinstance(widget, forms.Select):
        widget.attrs.setdefault("class", "form-select")
    elif not widget.is_hidden:
        widget.attrs.setdefault("class", "form-control")


class MomentField(forms.DateTimeField):
    """A moment to the minute, read and shown in a time zone."""

    def __init__(self, zone: ZoneInfo, **kwargs: Any) -> None:
        widget = forms.DateTimeInput({"type": "datetime-local"}, format=MINUTE_FORMAT)
        super().__init__(widget=widget, input_formats=[MINUTE_FORMAT], **kwargs)
        self._zone = zone

    def to_python(self, value: Any) -> datetime | None:
        """Raises ValidationError for what is no moment."""
        with timezone.override(self._zone):
            at: datetime | None = super().to_python(value)
        check_year(at)
        return at

    def prepare_value(self, value: Any) -> Any:
        """As the control shows it."""
        with timezone.override(self._zone):
            return super().prepare_value(value)

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Seconds, which the control cannot show, are no change."""
        shown = self.prepare_value(initial)
        return bool((shown.strftime(MINUTE_FORMAT) if shown else "") != (data or ""))


def check_year(at: date | None) -> None:
    """Raises ValidationError for a time that a time zone could move out of what can be told."""
    if at is not None and at.year not in YEARS:
        raise forms.ValidationError(f"The year is {YEARS[0]} to {YEARS[-1]}.")


class LinesField(forms.CharField):
    """A list, one thing a line; commas part things too."""

    def __init__(self, **kwargs: Any) -> None:
        widget = forms.Textarea({"rows": 3, "spellcheck": "false"})
        super().__init__(widget=widget, max_length=LIST_CHARS_MAX, required=False, **kwargs)

    def clean(self, value: Any) -> Any:
        """A tuple of texts."""
        return tuple(filter(None, re.split(r"[\s,]+", super().clean(value))))

    def prepare_value(self, value: Any) -> Any:
        """As the control shows it."""
        return value if value is None or isinstance(value, str) else "\n".join(value)

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compares the things, not the space between them."""
        return bool(tuple(initial or ()) != self.clean(data))


def limit_fields(prefix: str = "limits") -> dict[str, forms.Field]:
    """A field for each minute limit, `limits_requests_max` and so on."""
    return {
        f"{prefix}_{one.name}": forms.IntegerField(
            label=LIMIT_LABELS[one.name], min_value=1, max_value=LIMIT_MAX, required=False
        )
        for one in fields(MinuteLimits)
    }


def limits_shown(limits: MinuteLimits, prefix: str = "limits") -> dict[str, int | None]:
    """What those fields begin with."""
    return {f"{prefix}_{name}": value for name, value in asdict(limits).items()}


def limits_asked(cleaned: dict[str, Any], prefix: str = "limits") -> MinuteLimits:
    """What those fields say."""
    return MinuteLimits(
        **{one.name: cleaned[f"{prefix}_{one.name}"] for one in fields(MinuteLimits)}
    )


def choices_of(values: Iterable[str]) -> list[tuple[str, str]]:
    """Choices that are called what they are."""
    return [(value, value) for value in values]


class ConfirmForm(KitForm):
    """Asks for the name of what is about to end."""

    confirm = forms.CharField(max_length=LIST_CHARS_MAX)

    def __init__(self, *args: Any, name: str, **kwargs: Any) -> None:
        kwargs.setdefault("auto_id", "confirm_%s")
        super().__init__(*args, **kwargs)
        self._name = name
        control = self.fields["confirm"]
        control.label = f"Type {name} to confirm"
        control.widget.attrs |= {"autocomplete": "off", "data-confirms": name}

    def clean_confirm(self) -> str:
        """Raises ValidationError for any other text."""
        typed = str(self.cleaned_data["confirm"])
        if typed.strip() != self._name.strip():
            raise forms.ValidationError("This is not its name.")
        return typed
