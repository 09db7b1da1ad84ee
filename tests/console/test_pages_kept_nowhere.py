"""What the console's pages leave behind in browsers, and what they make of strange addresses."""

import pytest

from tests.console.operators import operator
from tests.headrace.door import Door
from tests.isolation import test_console_matrix as console
from tests.isolation.rows_console import PAGES
from tests.isolation.sides import both

pytestmark = pytest.mark.usefixtures("django_database")


def address_of(route: str) -> str:
    acme, _ = both()
    return console.address(route, console.slug_of(acme), PAGES[route].own(acme))


@pytest.mark.parametrize("route", console.READABLE)
def test_no_browser_keeps_a_page_of_a_tenant(route: str) -> None:
    acme, _ = both()
    path = address_of(route)
    for caller in (acme.owner, Door()):
        assert "no-store" in caller.get(path).headers["cache-control"]


def test_no_browser_keeps_a_page_of_nobodys_or_of_the_operator() -> None:
    acme, _ = both()
    for caller, path in [
        (acme.owner, "/console/?new=1"),
        (acme.owner, "/console/nobody/keys"),
        (operator(), "/operator/tenants"),
        (operator(), "/operator/"),
    ]:
        assert "no-store" in caller.get(path).headers["cache-control"]


@pytest.mark.parametrize("route", ["<slug:slug>/billing/prices", "<slug:slug>/search"])
def test_a_text_that_cannot_be_is_refused_before_it_is_looked_for(route: str) -> None:
    acme, _ = both()
    answer = acme.owner.get(address_of(route).partition("?")[0] + "?model=%00&q=%00")

    assert answer.status_code == 400


@pytest.mark.parametrize("query", ["q=%00", "after=a%00"])
def test_the_operators_pages_refuse_it_too(query: str) -> None:
    assert operator().get(f"/operator/tenants?{query}").status_code == 400
