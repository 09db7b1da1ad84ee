"""Names that are markup, wherever people or clients may give one, are text on every page."""

import json
from functools import cache
from uuid import UUID

import httpx
import pytest
from django.contrib.auth import get_user_model
from uuid_utils.compat import uuid7

import batch_jobs.facade
import billing.facade
import tenants.facade
from batch_jobs.facade import SummaryOrder
from billing.contracts import HoldRequest, ServiceTier, UsageCounts
from tenants.contracts import KeySettings, Role
from tests.billing.cast import make_offer, used
from tests.console.operators import operator
from tests.isolation import test_console_matrix as console
from tests.isolation.matrix import Arguments
from tests.isolation.rows_bulk import bulk_model, owner_of, uploaded
from tests.isolation.rows_console import PAGES
from tests.isolation.sides import Side, make_side

pytestmark = pytest.mark.usefixtures("django_database")

MARKUP = "'\"></script><img src=x onerror=alert(1)>"
RAW = "<img src=x"
OBJECTS = {
    "<slug:slug>/keys/<uuid:key_id>": "key_id",
    "<slug:slug>/keys/<uuid:key_id>/edit": "key_id",
    "<slug:slug>/keys/<uuid:key_id>/rotate": "key_id",
    "<slug:slug>/projects/<uuid:project_id>": "project_id",
    "<slug:slug>/projects/<uuid:project_id>/edit": "project_id",
    "<slug:slug>/team/<uuid:user_id>": "user_id",
    "<slug:slug>/webhooks/<uuid:webhook_id>": "webhook_id",
    "<slug:slug>/webhooks/<uuid:webhook_id>/edit": "webhook_id",
    "<slug:slug>/requests/<str:request_id>": "request_id",
    "<slug:slug>/jobs/<uuid:job_id>": "job_id",
}
"""Pages of something that has such a name here."""


@cache
def ill_named() -> tuple[Side, dict[str, object]]:
    """An organization in which everything is called MARKUP, and its things."""
    side = make_side("ill-named")
    actor = side.actor
    tenants.facade.update_organization(actor, display_name=MARKUP, cost_tags=("team",))
    project_id = tenants.facade.open_project(actor, MARKUP).project_id
    key_id = tenants.facade.create_key(actor, project_id, KeySettings(MARKUP)).key_id
    tenants.facade.create_service_account(actor, project_id, MARKUP)
    url = "https://hooks.example.com/?a=" + RAW.replace(" ", "")
    made = tenants.facade.create_webhook_endpoint(actor, url, (), MARKUP)
    user_id = side.users[Role.VIEWER]
    get_user_model().objects.filter(pk=user_id).update(display_name=MARKUP)
    return side, {
        "key_id": key_id,
        "project_id": project_id,
        "webhook_id": made.endpoint.endpoint_id,
        "user_id": user_id,
        "request_id": _request(side, project_id, key_id),
    }


def _request(side: Side, project_id: UUID, key_id: UUID) -> str:
    model = make_offer("free-of-charge", 0, 0, 0)
    request = HoldRequest(
        request_id=uuid7(),
        organization_id=side.organization_id,
        project_id=project_id,
        key_id=key_id,
        quote=billing.facade.quote(
            side.organization_id, project_id, model, ServiceTier.INTERACTIVE
        ),
        model_asked=MARKUP,
        prompt_tokens=1,
        output_tokens_max=1,
        end_user=MARKUP,
        tags={"team": MARKUP},
    )
    [outcome] = billing.facade.hold([request])
    assert outcome.refusal is None, outcome
    billing.facade.settle([used(request, UsageCounts(1, 0, 1), finish_reason="error")])
    billing.facade.roll_up()
    return f"req_{request.request_id.hex}"


def _job(side: Side) -> UUID:
    options = {"model": bulk_model(), "instruction": MARKUP, "language": MARKUP}
    files = [uploaded(owner_of(side))]
    order = SummaryOrder(files, options, metadata={"name": MARKUP, MARKUP: MARKUP})
    return batch_jobs.facade.create_summary(owner_of(side), order).job.job_id


def is_saved(answer: httpx.Response) -> bool:
    """Whether a browser saves it as a table and shows nothing of it, whatever it holds."""
    headers = answer.headers
    return (
        headers["content-type"].startswith("text/csv")
        and headers["content-disposition"].startswith("attachment")
        and headers["x-content-type-options"] == "nosniff"
    )


@pytest.mark.parametrize("route", console.READABLE)
def test_a_name_is_text_on_every_page(route: str) -> None:
    side, things = ill_named()
    name = OBJECTS.get(route)
    arguments: Arguments
    if name == "job_id":  # gone with the test that made it
        arguments = {name: _job(side)}
    else:
        arguments = {name: things[name]} if name else PAGES[route].own(side)
    path = console.address(route, console.slug_of(side), arguments)
    for door in (side.owner, side.members[Role.VIEWER]):
        answer = door.get(path)
        if is_saved(answer):
            continue

        assert RAW not in answer.text
        assert "<imgsrc" not in answer.text
    if name:
        assert "&lt;img" in side.owner.get(path).text


@pytest.mark.parametrize(
    "query",
    [
        *("usage?split=user", "usage?split=tag:team", "usage?split=project", "usage?split=key"),
        *("usage?measure=requests", "search?q=img", "keys?kind=admin", "requests?failed=1"),
        *("limits/new?whose=%3Cimg%20src%3Dx%3E&preview=1", "audit?action=%3Cimg%20src%3Dx%3E"),
    ],
)
def test_it_is_text_however_a_page_is_asked_for(query: str) -> None:
    side, _ = ill_named()
    answer = side.owner.get(f"/console/{console.slug_of(side)}/{query}")

    assert answer.status_code == 200
    assert RAW not in answer.text


def test_what_scripts_read_holds_no_end_of_a_script() -> None:
    side, _ = ill_named()
    page = side.owner.get(f"/console/{console.slug_of(side)}/usage?split=user").text
    data = [
        part.partition(">")[2].partition("</script>")[0]
        for part in page.split("<script")[1:]
        if 'type="application/json"' in part.partition(">")[0]
    ]

    assert data
    assert any(MARKUP in str(json.loads(one)).replace("\\'", "'") for one in data)


def test_it_is_text_on_the_operators_pages() -> None:
    side, _ = ill_named()
    caller = operator()
    for path in ("tenants?q=ill-named", f"tenants/{side.organization_id}"):
        answer = caller.get(f"/operator/{path}")

        assert answer.status_code == 200
        assert RAW not in answer.text
        assert "&lt;img src=x" in answer.text
