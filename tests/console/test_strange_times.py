"""Times at the ends of what can be told, in time zones on both sides: refused, and never stored."""

import pytest

import tenants.facade
from tenants.contracts import KeyKind
from tests.isolation.sides import Side, make_side
from tests.isolation.test_console_matrix import slug_of

pytestmark = pytest.mark.usefixtures("django_database")


@pytest.fixture(scope="module", params=["Asia/Tokyo", "America/New_York"])
def acme(request: pytest.FixtureRequest, django_database: object) -> Side:
    """Whose days begin there."""
    side = make_side("far")
    tenants.facade.update_organization(side.actor, time_zone=request.param)
    return side


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("audit?until=9999-12-31", 422),
        ("audit?since=0001-01-01", 422),
        ("audit?until=2199-12-31", 200),
        ("requests?start=0001-01-01T00:00", 400),
        ("requests?end=9999-12-31T23:59", 400),
        ("usage?from=9999-12-31", 400),
    ],
)
def test_a_filter_of_such_a_time_is_refused(acme: Side, path: str, status: int) -> None:
    answer = acme.owner.get(f"/console/{slug_of(acme)}/{path}")

    assert answer.status_code == status


@pytest.mark.parametrize("expires_at", ["9999-12-31T23:59", "0001-01-01T00:00"])
def test_no_key_ends_at_such_a_time(acme: Side, expires_at: str) -> None:
    before = tenants.facade.list_keys(acme.actor, KeyKind.PROJECT)
    fields = {"name": "far", "project_id": str(acme.project_id), "scopes": "chat"}
    path = f"/console/{slug_of(acme)}/keys"
    answer = acme.owner.post(
        f"{path}/new", data={"do": "create", **fields, "expires_at": expires_at}
    )

    assert answer.status_code == 422
    assert "The year is 2000 to 2199." in answer.text
    assert tenants.facade.list_keys(acme.actor, KeyKind.PROJECT) == before
    assert acme.owner.get(path).status_code == 200


def test_nor_does_the_api_make_one_that_no_page_could_show(acme: Side) -> None:
    path = f"/api/v1/organizations/{acme.organization_id}/keys"
    body = {"name": "far", "project_id": str(acme.project_id)}
    for expires_at in ("9999-12-31T23:59:59Z", "9000-01-01T00:00:00Z"):
        answer = acme.owner.post(path, json={**body, "expires_at": expires_at})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "expires_at")
    made = acme.owner.post(path, json={**body, "expires_at": "8999-12-31T23:59:59Z"})

    assert made.status_code == 201
    assert acme.owner.get(f"/console/{slug_of(acme)}/keys").status_code == 200
