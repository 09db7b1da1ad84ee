"""Every page of the console x {own, another organization's, deleted} x every role.

The list of pages is read off the URLconf; what rows_console.py does not list fails here. Requests
go through the web process's own ASGI function for REST, in this process.
"""

from uuid import UUID, uuid4

import httpx
import pytest
from django.conf import settings
from django.urls import get_resolver

import tenants.facade
from headrace.console_kit.pages import PageView
from tenants.contracts import Role
from tenants.facade import ROLE_PERMISSIONS
from tests.headrace.door import Door
from tests.isolation.matrix import Arguments
from tests.isolation.rows_console import NO_PAGES, PAGES, Fields, Form
from tests.isolation.sides import Side, both
from tests.isolation.test_route_matrix import CONVERTER, strict, urlconf

PREFIX = "console/"
pytestmark = pytest.mark.usefixtures("django_database")

ROUTES = {
    route.removeprefix(PREFIX): callback
    for route, callback in urlconf(get_resolver())
    if route.startswith(PREFIX)
}
VIEWS: dict[str, type[PageView]] = {
    route: callback.view_class for route, callback in ROUTES.items() if route not in NO_PAGES
}
READABLE = sorted(route for route in set(PAGES) & set(VIEWS) if hasattr(VIEWS[route], "get"))
FORMS = [(route, verb) for route in sorted(set(PAGES) & set(VIEWS)) for verb in PAGES[route].forms]


def slug_of(side: Side) -> str:
    return tenants.facade.read_organization(side.actor).slug


def address(route: str, slug: str, arguments: Arguments) -> str:
    named = {**arguments, "slug": slug}
    path = CONVERTER.sub(lambda found: str(named[found["name"]]), route)
    query = PAGES[route].query
    return f"/{PREFIX}{path}" + (f"?{query}" if query else "")


def post(caller: Door, route: str, verb: str, side: Side, arguments: Arguments) -> httpx.Response:
    form = PAGES[route].forms[verb]
    fields = form.fields(side, arguments) if callable(form.fields) else form.fields
    return caller.post(address(route, slug_of(side), arguments), data={"do": verb, **fields})


def check_shows_nothing_of(other: Side, answer: httpx.Response) -> None:
    ids = [other.organization_id, other.project_id, other.key_id, *other.users.values()]
    for text in [settings.SECRET_KEY, "secret_hash", *map(str, ids)]:
        assert text not in answer.text, text


def test_every_page_is_in_the_matrix() -> None:
    assert sorted(ROUTES) == sorted([*PAGES, *NO_PAGES])


@pytest.mark.parametrize("route", sorted(set(PAGES) & set(VIEWS)))
def test_every_form_of_a_page_is_in_the_matrix(route: str) -> None:
    verbs = {name.removeprefix("do_") for name in dir(VIEWS[route]) if name.startswith("do_")}

    assert set(PAGES[route].forms) == verbs


@pytest.mark.parametrize("route", READABLE)
def test_members_see_what_their_role_lets_them_and_nothing_of_others(route: str) -> None:
    acme, globex = both()
    row = PAGES[route]
    arguments = row.own(acme)
    for role in Role:
        answer = acme.members[role].get(address(route, slug_of(acme), arguments))
        may = VIEWS[route].needs in ROLE_PERMISSIONS[role]

        assert answer.status_code == (row.status if may else 403), (role, answer.text)
        check_shows_nothing_of(globex, answer)


@pytest.mark.parametrize("route", READABLE)
def test_what_is_another_organizations_is_not_there(route: str) -> None:
    acme, globex = both()
    row = PAGES[route]
    wrong = [(slug_of(globex), row.own(globex)), ("nobody", row.own(acme))]
    if row.own(acme):
        last = [found["name"] for found in CONVERTER.finditer(route)][-1]
        strange = uuid4() if isinstance(row.own(acme)[last], UUID) else uuid4().hex
        wrong.append((slug_of(acme), row.own(globex)))
        wrong.append((slug_of(acme), {**row.own(acme), last: strange}))
    makers = [make for make in (row.deleted, row.sibling) if make is not None]
    wrong.extend((slug_of(acme), make(acme)) for make in makers)
    for slug, arguments in wrong:
        answer = acme.owner.get(address(route, slug, arguments))

        assert answer.status_code == 404, (slug, arguments, answer.text)
        assert "Traceback" not in answer.text


@pytest.mark.parametrize("route", READABLE)
def test_who_is_not_signed_in_is_asked_to(route: str) -> None:
    acme, _ = both()
    answer = Door().get(address(route, slug_of(acme), PAGES[route].own(acme)))

    assert answer.status_code == 302
    assert answer.headers["location"].startswith("/accounts/login/?next=/console/")


@pytest.mark.parametrize("route", READABLE)
def test_a_demanded_second_factor_is_asked_for(route: str) -> None:
    answer = strict().owner.get(address(route, slug_of(strict()), PAGES[route].own(strict())))

    assert answer.status_code == 302
    assert answer.headers["location"] == "/accounts/2fa/"


@pytest.mark.parametrize(("route", "verb"), FORMS)
def test_a_form_does_what_it_says_for_whoever_may(route: str, verb: str) -> None:
    acme, globex = both()
    view, form = VIEWS[route], PAGES[route].forms[verb]
    assert view.writes is not None
    for role in Role:
        answer = post(acme.members[role], route, verb, acme, PAGES[route].own(acme))
        permitted = ROLE_PERMISSIONS[role]
        may = view.needs in permitted and view.writes in permitted

        if may:
            assert answer.status_code == form.status, (role, answer.status_code, answer.text)
            check_shows_nothing_of(globex, answer)
        else:
            assert answer.status_code == 403, (role, answer.status_code)


@pytest.mark.parametrize(("route", "verb"), FORMS)
def test_no_form_reaches_another_organization(route: str, verb: str) -> None:
    acme, globex = both()
    theirs = PAGES[route].own(globex)
    form: Form = PAGES[route].forms[verb]
    fields = form.fields(globex, theirs) if callable(form.fields) else form.fields
    data = {"do": verb, **fields}
    assert acme.owner.post(address(route, slug_of(globex), theirs), data=data).status_code == 404
    if theirs:
        answer = acme.owner.post(address(route, slug_of(acme), theirs), data=data)

        assert answer.status_code == 404, answer.text


@pytest.mark.parametrize(("route", "verb"), FORMS)
def test_a_form_wants_its_token_and_where_it_matters_a_recent_sign_in(
    route: str, verb: str
) -> None:
    acme, _ = both()
    arguments = PAGES[route].own(acme)
    path = address(route, slug_of(acme), arguments)
    forged = acme.owner.post(path, data={"do": verb}, headers={"x-csrftoken": "0" * 32})
    assert forged.status_code == 403
    if VIEWS[route].is_sensitive:
        answer = post(acme.long_ago, route, verb, acme, arguments)

        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/accounts/reauthenticate/?next=")


def names_something(fields: Fields) -> bool:
    """Whether a form's fields name something of their side by its id."""
    return any(is_id(text) for text in fields.values())


def is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(("route", "verb"), FORMS)
def test_no_field_of_a_form_names_what_is_another_organizations(route: str, verb: str) -> None:
    acme, globex = both()
    form: Form = PAGES[route].forms[verb]
    if not callable(form.fields):
        return
    fields = form.fields(globex, PAGES[route].own(globex))
    if not names_something(fields):
        return
    path = address(route, slug_of(acme), PAGES[route].own(acme))
    answer = acme.owner.post(path, data={"do": verb, **fields})

    assert answer.status_code in {400, 404, 422}, (answer.status_code, answer.text)
