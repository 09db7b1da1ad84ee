"""What holds for every page of the consoles: who sees it, that everybody can use it, that it fits.

A new page needs nothing here: the rails name it, and what lies below is found by its links.
"""

import pytest
from playwright.sync_api import Browser, Page

from tenants.contracts import Role
from tenants.facade import ROLE_PERMISSIONS
from tests.console.accessibility import assert_accessible
from tests.console.browser import HEIGHTS, NARROW, WIDE, Browsing, Theme
from tests.console.conftest import MemberPage
from tests.console.looking import assert_fits, assert_light, go
from tests.console.people import Cast
from tests.console.registry import (
    ACCOUNT_PATHS,
    STRANGERS_PATHS,
    RailPage,
    operator_paths,
    rail_pages,
    reached,
)
from tests.house import LiveHouse

pytestmark = pytest.mark.long
THEMES: tuple[Theme, ...] = ("light", "dark")
RAIL = rail_pages()
every_page = pytest.mark.parametrize("rail_page", RAIL, ids=lambda one: one.route)
each_theme = pytest.mark.parametrize("theme", THEMES)


def check_looks(page: Page) -> None:
    """For everybody, and without scrolling sideways on a phone or a desk."""
    for width in (WIDE, NARROW):
        page.set_viewport_size({"width": width, "height": HEIGHTS[width]})
        assert_fits(page)
        assert_accessible(page)


@every_page
@pytest.mark.parametrize("role", Role)
def test_a_member_sees_what_their_role_allows(
    rail_page: RailPage, role: Role, browsing: Browsing, cast: Cast, member_page: MemberPage
) -> None:
    path = rail_page.path(cast.full_slug)
    allowed = rail_page.needs in ROLE_PERMISSIONS[role]
    if not allowed:
        browsing.expect(403, path)
    answer = go(member_page(role), path)

    assert answer.status == (200 if allowed else 403)


@every_page
@each_theme
@pytest.mark.parametrize("state", ["full", "empty"])
def test_a_page_is_for_everybody_and_fits(
    rail_page: RailPage, theme: Theme, state: str, cast: Cast, member_page: MemberPage
) -> None:
    slug = cast.full_slug if state == "full" else cast.empty_slug
    page = member_page(Role.OWNER, slug, theme=theme)
    go(page, rail_page.path(slug))

    check_looks(page)


@pytest.fixture(scope="module")
def two_clicks_away(browser: Browser, house: LiveHouse, cast: Cast) -> dict[str, str]:
    """What an owner reaches from the overview: a route's first address that is met."""
    pages = Browsing(browser, house.root_url)
    try:
        page = cast.page(pages, cast.member(Role.OWNER))
        return reached(page, RAIL[0].path(cast.full_slug))
    finally:
        pages.close()


def test_every_page_of_the_rail_is_two_clicks_away(two_clicks_away: dict[str, str]) -> None:
    assert {one.route for one in RAIL} <= set(two_clicks_away)


@each_theme
def test_what_lies_below_the_rail_is_for_everybody_and_fits(
    theme: Theme,
    two_clicks_away: dict[str, str],
    member_page: MemberPage,
    subtests: pytest.Subtests,
) -> None:
    page = member_page(theme=theme)
    rail = {one.route for one in RAIL}
    below = {route: path for route, path in two_clicks_away.items() if route not in rail}
    for route, path in below.items():
        with subtests.test(route):
            assert go(page, path).status == 200
            check_looks(page)


@each_theme
@pytest.mark.parametrize("name", STRANGERS_PATHS)
def test_a_page_for_strangers_is_for_everybody_and_fits(
    name: str, theme: Theme, browsing: Browsing
) -> None:
    page = browsing.page(theme=theme)
    answer = go(page, STRANGERS_PATHS[name])

    assert answer.status == 200
    check_looks(page)


@each_theme
@pytest.mark.parametrize("name", ACCOUNT_PATHS)
def test_a_page_of_ones_account_is_for_everybody_and_fits(
    name: str, theme: Theme, member_page: MemberPage
) -> None:
    page = member_page(theme=theme)
    answer = go(page, ACCOUNT_PATHS[name])

    assert answer.status == 200
    check_looks(page)


@each_theme
@pytest.mark.parametrize("route", operator_paths())
def test_an_operators_page_is_for_everybody_and_fits(
    route: str, theme: Theme, operator_page: MemberPage
) -> None:
    page = operator_page(theme=theme)
    answer = go(page, operator_paths()[route])

    assert answer.status == 200
    check_looks(page)


@pytest.mark.parametrize("route", operator_paths())
def test_an_operators_page_does_not_exist_for_an_owner(
    route: str, browsing: Browsing, member_page: MemberPage
) -> None:
    path = operator_paths()[route]
    browsing.expect(404, path)

    assert go(member_page(), path).status == 404


def test_the_first_page_is_light(cast: Cast, member_page: MemberPage) -> None:
    assert assert_light(member_page(), RAIL[0].path(cast.full_slug)) > 0
