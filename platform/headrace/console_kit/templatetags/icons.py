"""`{% icon "key" %}`: a vendored drawing inline, in the colour and size of the text around it.

It says nothing to a screen reader: what it means must stand in words beside it, or in a label of
the control it is in. Nothing in it needs more than the strictest content policy allows.
"""

import re
from functools import cache
from pathlib import Path

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

VENDORED = Path(__file__).parents[1] / "static" / "kit" / "vendor" / "tabler-icons-3.52.0"
NAME = re.compile(r"[a-z0-9-]+")
CANVAS = '<path stroke="none" d="M0 0h24v24H0z" fill="none" />'
"""The invisible square that every drawing begins with."""

register = template.Library()


@register.simple_tag
def icon(name: str, **attributes: str) -> SafeString:
    """The drawing of that name; `class` adds to its class.

    Raises TemplateSyntaxError for a name that is not vendored, and for any other attribute.
    """
    classes = f"icon {attributes.pop('class', '')}".strip()
    if attributes:
        raise template.TemplateSyntaxError(f"an icon has no {', '.join(attributes)}")
    return format_html(
        '<svg class="{}" width="24" height="24" viewBox="0 0 24 24" fill="none"'
        ' stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round"'
        ' aria-hidden="true">{}</svg>',
        classes,
        _drawing(name),
    )


@cache
def _drawing(name: str) -> SafeString:
    file = VENDORED / f"{name}.svg"
    if not NAME.fullmatch(name) or not file.is_file():
        raise template.TemplateSyntaxError(f"no icon {name!r} is vendored")
    inside = file.read_text().partition(">")[2].removesuffix("</svg>").replace(CANVAS, "")
    return mark_safe("".join(line.strip() for line in inside.splitlines()))  # noqa: S308 - our file
