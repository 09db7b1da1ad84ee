"""What tests in a browser use: a browser, the people of the house, and pages that are watched."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page

from headrace.standalone.demo_people import Mailbox
from tenants.contracts import Role
from tests.console.browser import WIDE, Browsing, ChromiumMissing, Theme, chromium
from tests.console.furnishing import furnished_organization, submit_jobs
from tests.console.people import Cast
from tests.house import LiveHouse
from tests.leftovers import forget_bulk_work

MemberPage = Callable[..., Page]


@pytest.fixture(autouse=True)
def no_bulk_work_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test planted agrees with no ledger: it goes with it."""
    yield
    forget_bulk_work(request.fixturenames)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for a module's tests; missing, they fail: a skipped browser test proves nothing.

    Not longer than a module: while it lives, nothing in this thread may call `asyncio.run`.
    """
    try:
        with chromium() as running:
            yield running
    except ChromiumMissing as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def cast(house: LiveHouse) -> Cast:
    """The people of the run's house, who stay signed in from test to test."""
    full = furnished_organization(house.model)
    submit_jobs(house.root_url, full.secret, house.model)
    return Cast(full.slug)


@pytest.fixture
def browsing(browser: Browser, house: LiveHouse) -> Iterator[Browsing]:
    """Pages on the run's house; after the test they are closed and must have had no fault."""
    pages = Browsing(browser, house.root_url)
    try:
        yield pages
        pages.check()
    finally:
        pages.close()


@pytest.fixture
def member_page(browsing: Browsing, cast: Cast) -> MemberPage:
    """`member_page(Role.VIEWER)`: a page of a member of the full organization, signed in."""

    def make(
        role: Role = Role.OWNER, slug: str = "", *, theme: Theme = "light", width: int = WIDE
    ) -> Page:
        return cast.page(browsing, cast.member(role, slug), theme=theme, width=width)

    return make


@pytest.fixture
def operator_page(browsing: Browsing, cast: Cast) -> MemberPage:
    """`operator_page()`: a page of somebody of the staff, signed in with a second factor."""

    def make(*, theme: Theme = "light", width: int = WIDE) -> Page:
        return cast.page(browsing, cast.operator, theme=theme, width=width)

    return make


@pytest.fixture
def mailbox(house: LiveHouse) -> Mailbox:
    """All mail that the house's worker has sent."""
    return Mailbox(house.folder.root / "outbox")
