"""Whose console it is: name, logo and accent, by settings.

The accent is a style sheet of its own, because pages may not carry styles. Called by templates.
"""

from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

MAX_AGE_S = 300


@dataclass(frozen=True, slots=True)
class Brand:
    """`logo` and `icon` are paths under the static files."""

    name: str
    logo: str
    icon: str


def brand(request: HttpRequest) -> dict[str, Brand]:
    """For every template."""
    return {
        "brand": Brand(settings.CONSOLE_NAME, settings.CONSOLE_LOGO, settings.CONSOLE_ICON),
    }


@require_safe
def accent(request: HttpRequest) -> HttpResponse:
    """`/console/accent.css`: the one colour of buttons and links."""
    color = settings.CONSOLE_ACCENT
    number = int(color.removeprefix("#"), 16)
    rgb = f"{number >> 16}, {number >> 8 & 0xFF}, {number & 0xFF}"
    return HttpResponse(
        f':root, [data-bs-theme="light"], [data-bs-theme="dark"] {{'
        f" --tblr-primary: {color}; --tblr-primary-rgb: {rgb}; --tblr-primary-fg: #fff; }}\n",
        content_type="text/css",
        headers={"Cache-Control": f"public, max-age={MAX_AGE_S}"},
    )
