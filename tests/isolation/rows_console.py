"""The console's rows of the isolation matrix: every page, and whose things its address can name.

    "<slug:slug>/keys/<uuid:key_id>": Page(key, forms={"revoke": Form({"confirm": "x"})})

Under `console/`. `own` makes a fresh object on a side and returns the address's arguments beyond
`slug`; `deleted` and `sibling` as in routes.py. Each `do_<verb>` of a page has a form here, with
fields that do it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.isolation.matrix import Arguments, Make, nothing
from tests.isolation.sides import Side

Fields = Mapping[str, str]


@dataclass(frozen=True)
class Form:
    """What a form sends, and the status that somebody who may gets: 303 after a write."""

    fields: Fields | Callable[[Side, Arguments], Fields] = field(default_factory=dict)
    status: int = 303


@dataclass(frozen=True)
class Page:
    """One page of an organization."""

    own: Make = nothing
    deleted: Make | None = None
    sibling: Make | None = None
    forms: Mapping[str, Form] = field(default_factory=dict)
    status: int = 200
    query: str = ""


PAGES: dict[str, Page] = {
    "<slug:slug>/": Page(),
}
NO_PAGES: Mapping[str, str] = {
    "": "of the person whose session it is: leads to their own organization",
    "accent.css": "the same text for everybody",
}
"""Routes of the console that show nothing of a tenant's, each with the reason."""
