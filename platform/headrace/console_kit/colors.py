"""Colours that an operator chooses, checked before they get into a style sheet. Pure."""

import re

from django.core.exceptions import ImproperlyConfigured

HEX = re.compile(r"#[0-9a-f]{6}", re.IGNORECASE)


def checked_color(text: str) -> str:
    """`#rrggbb`; raises ImproperlyConfigured for anything else."""
    if HEX.fullmatch(text) is None:
        raise ImproperlyConfigured(f"HEADRACE_CONSOLE_ACCENT must be like #0b5c92, not {text!r}")
    return text.lower()
