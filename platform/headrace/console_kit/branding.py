"""Whose console it is: name, logo and accent, by settings.

The accent is a style sheet of its own, because pages may not carry styles. Called by templates.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from headrace.console_kit.operator_host import operator_href

MAX_AGE_S = 300
LIGHTER_PERCENT = 55


@dataclass(frozen=True, slots=True)
class Brand:
    """`logo` and `icon` are paths under the static files."""

    name: str
    logo: str
    icon: str
    operator_href: str


def brand(request: HttpRequest) -> dict[str, Brand]:
    """For every template."""
    return {
        "brand": Brand(
            settings.CONSOLE_NAME,
            settings.CONSOLE_LOGO,
            settings.CONSOLE_ICON,
            operator_href(),
        ),
    }


@require_safe
def accent(request: HttpRequest) -> HttpResponse:
    """`/console/accent.css`: the one colour of buttons and links."""
    color = settings.CONSOLE_ACCENT
    parts = bytes.fromhex(color.removeprefix("#"))
    # On dark ground the same colour, light enough to be read.
    light = [part + (255 - part) * LIGHTER_PERCENT // 100 for part in parts]
    return HttpResponse(
        f":root, [data-bs-theme] {{ --tblr-primary: {color};"
        f" --tblr-primary-rgb: {_listed(parts)}; --tblr-primary-fg: #fff; }}\n"
        f":root {{ --tblr-link-color-rgb: {_listed(parts)}; }}\n"
        f'[data-bs-theme="dark"] {{ --tblr-link-color-rgb: {_listed(light)};'
        f" --tblr-link-hover-color-rgb: {_listed(light)}; --tblr-link-color: rgb({_listed(light)});"
        " }\n"
        f'[data-bs-theme="dark"] .btn-link {{ color: rgb({_listed(light)}); }}\n',
        content_type="text/css",
        headers={"Cache-Control": f"public, max-age={MAX_AGE_S}"},
    )


def _listed(parts: Iterable[int]) -> str:
    return ", ".join(map(str, parts))
