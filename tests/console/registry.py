"""Every page of the house, for tests and screenshots that walk them all.

The pages of the rails are read off the rails, those below them (a receipt, a job) are found by
following links as a person would, so that a new page is walked without being named here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.urls import NoReverseMatch, Resolver404, resolve, reverse
from playwright.sync_api import Page

from headrace.console_kit import navigation
from tenants.contracts import Permission
from tests.console.looking import go

TENANT_SPACE, OPERATOR_SPACE = "console", "operator"
CLICKS_MAX = 2
"""From the overview to anything."""


@dataclass(frozen=True, slots=True)
class RailPage:
    """A page of a tenant's rail."""

    route: str
    needs: Permission

    def path(self, slug: str) -> str:
        """Where it is for an organization."""
        return reverse(f"{TENANT_SPACE}:{self.route}", args=(slug,))


def rail_pages() -> list[RailPage]:
    """Of a tenant, in the rail's order."""
    return [RailPage(entry.route, entry.needs) for entry in navigation.TENANT if _is_built(entry)]


def operator_paths() -> dict[str, str]:
    """The addresses of the operator's rail by their routes."""
    found = {}
    for entry in navigation.OPERATOR:
        try:
            found[entry.route] = reverse(f"{OPERATOR_SPACE}:{entry.route}")
        except NoReverseMatch:
            continue
    return found


ACCOUNT_PATHS = {
    "addresses": "/accounts/email/",
    "password": "/accounts/password/change/",
    "second-factors": "/accounts/2fa/",
    "providers": "/accounts/3rdparty/",
    "sign-out": "/accounts/logout/",
    "prove-again": "/accounts/reauthenticate/",
    "organization-new": "/console/?new",
}
"""For who is signed in."""
STRANGERS_PATHS = {
    "sign-in": "/accounts/login/",
    "sign-up": "/accounts/signup/",
    "password-forgotten": "/accounts/password/reset/",
    "mail-sent": "/accounts/confirm-email/",
    "invitation": "/console/invitation",
}
"""For who is not."""


def reached(page: Page, start: str) -> dict[str, str]:
    """Each route within CLICKS_MAX clicks of `start`, with the first address of it that was met.

    Follows links as a person would, one for each route; the page ends up anywhere.
    """
    found: dict[str, str] = {}
    fresh = {"": start}
    for _ in range(CLICKS_MAX):
        met: dict[str, str] = {}
        for path in fresh.values():
            go(page, path)
            met |= {route: href for route, href in _links(page) if route not in found | met}
        found |= met
        fresh = met
    return found


def _links(page: Page) -> Iterator[tuple[str, str]]:
    hrefs: list[str] = page.eval_on_selector_all(
        "a[href]:not([download]):not([target=_blank])", "all => all.map(one => one.href)"
    )
    # A file that a page may be shown in place of (too many rows) is a download without saying so.
    for href in (one for one in hrefs if not urlsplit(one).path.endswith(".csv")):
        try:
            match = resolve(urlsplit(href).path)
        except Resolver404:
            continue
        # Home leads to the first organization's overview.
        if match.namespace in (TENANT_SPACE, OPERATOR_SPACE) and match.url_name != "home":
            yield match.url_name or "", href.partition("#")[0]


def _is_built(entry: navigation.Entry) -> bool:
    try:
        reverse(f"{TENANT_SPACE}:{entry.route}", args=("some-slug",))
    except NoReverseMatch:
        return False
    return True
