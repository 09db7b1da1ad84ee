"""Usage, costs, requests and receipts at the management API's door."""

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import openai
import pytest
from pydantic import BaseModel

from billing.contracts import UsageCounts
from billing.facade import settle
from tenants.contracts import Permission
from tenants.facade import (
    create_admin_key,
    create_project,
    issue_key,
    operator_of,
    update_organization,
)
from tests.billing.cast import Tenant, make_tenant, used
from tests.billing.planted import Planted, planted
from tests.headrace.door import HOST, Door

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
DAY = {"start_time": "2026-05-04", "end_time": "2026-05-05"}
START = int(NOON.timestamp()) - 12 * 3600
END = int(NOON.timestamp()) + 12 * 3600
UNIX_DAY = {"start_time": START, "end_time": END}
READS = frozenset({Permission.USAGE_READ, Permission.REQUESTS_READ})


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """The tenant who asks."""
    return make_tenant("acme")


@pytest.fixture
def globex(django_database: object) -> Tenant:
    """The tenant who must not be seen."""
    return make_tenant("globex")


def admin_key(tenant: Tenant, permissions: frozenset[Permission] = READS) -> str:
    """The secret of a new admin key."""
    key = create_admin_key(operator_of(tenant.organization_id), "reports", permissions)
    return key.secret


def get(tenant: Tenant, path: str, **query: Any) -> httpx.Response:
    """With an admin key of the tenant, under its routes."""
    door = Door(admin_key(tenant))
    url = f"/api/v1/organizations/{tenant.organization_id}/{path}"
    return door.request("GET", url, params=query)


def results(answer: httpx.Response) -> list[dict[str, Any]]:
    """All results of all buckets."""
    assert answer.status_code == 200, answer.text
    return [row for bucket in answer.json()["data"] for row in bucket["results"]]


def stock_client(tenant: Tenant) -> openai.OpenAI:
    """The stock SDK, with an admin key, strict about what it gets."""
    secret = admin_key(tenant)
    door = Door(secret)

    def through_the_door(request: httpx.Request) -> httpx.Response:
        answer = door.request(
            request.method, request.url.raw_path.decode(), headers=dict(request.headers)
        )
        return httpx.Response(
            answer.status_code, headers=answer.headers, content=answer.content, request=request
        )

    return openai.OpenAI(
        api_key="unused",
        admin_api_key=secret,
        base_url=f"{HOST}/v1",
        max_retries=0,
        http_client=httpx.Client(transport=httpx.MockTransport(through_the_door)),
        _strict_response_validation=True,
    )


def told(page: BaseModel) -> list[dict[str, Any]]:
    """All results of all buckets of a page that the SDK has read."""
    return [row for bucket in page.model_dump()["data"] for row in bucket["results"]]


@pytest.fixture
def used_day(acme: Tenant) -> Iterator[Tenant]:
    """A day of acme's with completions, a batch, an embedding and a failure."""
    events = [
        Planted(NOON, uncached=10, cached=5, output=2, model="a", end_user="ann"),
        Planted(NOON, uncached=3, model="a", tier="batch", tags={"team": "=red"}),
        Planted(NOON, uncached=7, model="b", is_embedding=True),
        Planted(NOON, uncached=1, model="b", finish_reason="engine_lost", end_user="bob"),
    ]
    with planted(acme, events):
        yield acme


def test_the_stock_client_reads_completions(used_day: Tenant) -> None:
    client = stock_client(used_day)

    page = client.admin.organization.usage.completions(
        start_time=START, end_time=END, group_by=["model", "batch"], bucket_width="1d"
    )

    [bucket] = page.data
    assert (page.object, page.has_more, page.next_page) == ("page", False, None)
    assert (bucket.start_time, bucket.end_time) == (START, END)
    fields = ("model", "batch", "num_model_requests", "input_tokens", "output_tokens")
    assert [tuple(row[field] for field in fields) for row in told(page)] == [
        ("a", True, 1, 3, 0),
        ("a", False, 1, 15, 2),
        ("b", False, 1, 1, 0),
    ]
    assert told(page)[1]["input_cached_tokens"] == 5
    assert told(page)[1]["input_uncached_tokens"] == 10


def test_the_stock_client_reads_embeddings_and_users(used_day: Tenant) -> None:
    usage = stock_client(used_day).admin.organization.usage

    embeddings = usage.embeddings(start_time=START, end_time=END)
    users = usage.completions(start_time=START, end_time=END, group_by=["user_id"])
    ann = usage.completions(start_time=START, end_time=END, user_ids=["ann"])

    assert [(row["num_model_requests"], row["input_tokens"]) for row in told(embeddings)] == [
        (1, 7)
    ]
    assert [(row["user_id"], row["num_model_requests"]) for row in told(users)] == [
        ("ann", 1),
        ("bob", 1),
        (None, 1),
    ]
    assert [row["input_tokens"] for row in told(ann)] == [15]


def test_the_stock_client_reads_costs_and_we_tell_them_exactly(used_day: Tenant) -> None:
    page = stock_client(used_day).admin.organization.usage.costs(
        start_time=START, end_time=END, group_by=["line_item"]
    )

    amounts = [(row["line_item"], row["amount"]) for row in told(page)]
    assert [(item, amount["value"], amount["currency"]) for item, amount in amounts] == [
        ("a, batch", 3e-12, "usd"),
        ("a", 17e-12, "usd"),
        ("b", 8e-12, "usd"),
    ]
    assert [amount["amount_pico"] for _, amount in amounts] == ["3", "17", "8"]
    assert amounts[1][1]["amount"] == "0.000000000017"


def test_pages_follow_each_other(acme: Tenant) -> None:
    events = [Planted(NOON + timedelta(hours=hour)) for hour in range(5)]
    found: list[int] = []
    with planted(acme, events):
        usage = stock_client(acme).admin.organization.usage
        page = usage.completions(start_time=START, end_time=END, bucket_width="1h", limit=10)
        while True:
            found += [row["num_model_requests"] for row in told(page)]
            if not page.has_more:
                break
            assert page.next_page is not None
            page = usage.completions(
                start_time=START, end_time=END, bucket_width="1h", limit=10, page=page.next_page
            )

    assert found == [1] * 5


def test_our_report_tells_money_exactly(used_day: Tenant) -> None:
    [row] = results(get(used_day, "usage", **DAY))

    assert (row["num_model_requests"], row["num_failed_requests"]) == (4, 1)
    assert row["charge"] == {"amount_pico": "28", "amount": "0.000000000028"}
    assert row["written_off"]["amount_pico"] == "0"


def test_days_are_the_organizations_own(acme: Tenant) -> None:
    update_organization(operator_of(acme.organization_id), time_zone="Europe/Amsterdam")
    summer_time_began = datetime(2026, 3, 29, tzinfo=UTC)
    events = [Planted(summer_time_began + timedelta(minutes=30 * n)) for n in range(-2, 46)]
    with planted(acme, events):
        answer = get(acme, "usage", start_time="2026-03-29", end_time="2026-03-31")

    data = answer.json()["data"]
    assert [bucket["start_time"] for bucket in data] == [
        "2026-03-29T00:00:00+01:00",
        "2026-03-30T00:00:00+02:00",
    ]
    assert [row["num_model_requests"] for row in results(answer)] == [46, 2]


def test_a_tag_is_told_apart(used_day: Tenant) -> None:
    rows = results(get(used_day, "usage", **DAY, tag="team", **{"group_by[]": "tag"}))

    assert [(row["tag"], row["num_model_requests"]) for row in rows] == [
        ({"name": "team", "value": "=red"}, 1),
        ({"name": "team", "value": None}, 3),
    ]


def test_a_file_has_the_same_rows_and_no_formula(used_day: Tenant) -> None:
    answer = get(used_day, "usage.csv", **DAY, tag="team", **{"group_by[]": ["tag", "model"]})

    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(row["model"], row["tag_value"], row["charge_pico"]) for row in rows] == [
        ("a", "'=red", "3"),
        ("a", "", "17"),
        ("b", "", "8"),
    ]


def test_a_long_file_is_read_in_parts(acme: Tenant) -> None:
    events = [Planted(NOON + timedelta(days=day)) for day in range(0, 100, 9)]
    with planted(acme, events):
        answer = get(acme, "usage.csv", start_time="2026-05-01", end_time="2026-09-01")
        too_long = get(
            acme, "usage.csv", start_time="2026-01-01", end_time="2026-05-01", bucket_width="1m"
        )

    assert len(answer.text.splitlines()) == 1 + len(events)
    assert (too_long.status_code, too_long.json()["error"]["param"]) == (400, "end_time")


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({}, "start_time"),
        ({"start_time": "yesterday"}, "start_time"),
        ({"start_time": "99999999999999"}, "start_time"),
        ({"start_time": "2026-05-04", "end_time": "2026-05-04"}, "end_time"),
        (DAY | {"bucket_width": "1w"}, "bucket_width"),
        (DAY | {"limit": "32"}, "limit"),
        (DAY | {"limit": "0"}, "limit"),
        (DAY | {"page": "2"}, "page"),
        (DAY | {"page": "page_0"}, "page"),
        (DAY | {"group_by": "organization_id"}, "group_by"),
        (DAY | {"group_by": "tag"}, "tag"),
        (DAY | {"tag": "team"}, "tag"),
        (DAY | {"group_by": "user_id", "tag": "team"}, "tag"),
        (DAY | {"project_ids": "mine"}, "project_ids"),
        (DAY | {"batch": "yes"}, "batch"),
        (DAY | {"models": "\0"}, "models"),
        (DAY | {"organization_id": str(uuid4())}, "organization_id"),
    ],
)
def test_what_cannot_be_asked_is_named(acme: Tenant, query: dict[str, str], param: str) -> None:
    answer = get(acme, "usage", **query)

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_an_open_end_is_the_end_of_the_bucket_that_runs(acme: Tenant) -> None:
    settle([used(acme.held(), UsageCounts(60, 0, 40))])
    yesterday = datetime.now(UTC) - timedelta(days=1)

    rows = results(get(acme, "usage", start_time=yesterday.isoformat()))

    assert [row["charge"]["amount_pico"] for row in rows] == ["100"]


def test_recent_requests_come_newest_first_and_in_pages(acme: Tenant) -> None:
    asked = [acme.held() for _ in range(5)]
    for one in asked:
        settle([used(one, UsageCounts(60, 0, 40))])
    newest_first = [f"req_{one.request_id.hex}" for one in reversed(asked)]

    first = get(acme, "requests", limit=3).json()
    second = get(acme, "requests", limit=3, after=first["last_id"]).json()
    oldest = get(acme, "requests", limit=1, order="asc").json()

    assert [row["id"] for row in first["data"]] == newest_first[:3]
    assert [row["id"] for row in second["data"]] == newest_first[3:]
    assert (first["has_more"], second["has_more"]) == (True, False)
    assert oldest["data"][0]["id"] == newest_first[-1]
    assert first["data"][0]["amount_pico"] == "100"
    assert first["data"][0]["tokens"] == {"uncached_input": 60, "cached_input": 0, "output": 40}


def test_requests_are_filtered(used_day: Tenant) -> None:
    expected = {
        "model": ("b", 2),
        "tier": ("batch", 1),
        "failed": ("true", 1),
        "finish_reason": ("engine_lost", 1),
        "user_id": ("ann", 1),
        "project_id": (str(used_day.project_id), 4),
        "api_key_id": (str(uuid4()), 0),
        "start_time": ("2026-05-04T12:00:01", 0),
        "end_time": ("2026-05-04T12:00:01", 4),
    }
    for name, (value, number) in expected.items():
        assert len(get(used_day, "requests", **{name: value}).json()["data"]) == number, name
    tagged = get(used_day, "requests", tag="team", tag_value="=red").json()["data"]
    assert [row["tags"] for row in tagged] == [{"team": "=red"}]


def test_a_search_goes_on_where_it_stopped(acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("billing.usage.requests.SCANNED_MAX", 4)
    asked = [acme.held() for _ in range(10)]
    for number, one in enumerate(asked):
        reason = "engine_lost" if number == 0 else "stop"
        settle([used(one, UsageCounts(60, 0, 40), reason)])
    pages = []
    after: dict[str, str] = {}
    while True:
        page = get(acme, "requests", failed="true", **after).json()
        pages.append([row["id"] for row in page["data"]])
        if not page["has_more"]:
            break
        after = {"after": page["last_id"]}

    assert pages == [[], [], [f"req_{asked[0].request_id.hex}"]]


def test_a_receipt_is_its_organizations(acme: Tenant, globex: Tenant) -> None:
    request = acme.held()
    settle([used(request, UsageCounts(60, 0, 40))])
    path = f"requests/req_{request.request_id.hex}"

    own, foreign = get(acme, path), get(globex, path)

    assert own.json()["amount_pico"] == "100"
    assert own.json()["project_id"] == str(acme.project_id)
    assert foreign.status_code == 404
    assert get(acme, "requests/nonsense").status_code == 404


def test_a_projects_key_reads_receipts_of_its_project_only(acme: Tenant) -> None:
    request = acme.held()
    settle([used(request, UsageCounts(60, 0, 40))])
    sibling = create_project(acme.organization_id, "sibling")
    sibling_key = issue_key(acme.organization_id, sibling, "sibling").secret
    path = f"/v1/usage/requests/req_{request.request_id.hex}"

    statuses = [
        Door(secret).request("GET", path).status_code
        for secret in (acme.secret, sibling_key, admin_key(acme))
    ]

    assert statuses == [200, 404, 200]
    no_requests = admin_key(acme, frozenset({Permission.USAGE_READ}))
    assert Door(no_requests).request("GET", path).status_code == 403


@pytest.mark.parametrize("path", ["usage", "usage.csv", "requests", "requests/req_" + "0" * 32])
def test_reports_are_for_those_who_may_read_them(acme: Tenant, globex: Tenant, path: str) -> None:
    url = f"/api/v1/organizations/{acme.organization_id}/{path}"
    keys = {
        403: (admin_key(acme, frozenset({Permission.WEBHOOKS_READ})), acme.secret),
        404: (admin_key(globex),),
    }

    for status, secrets in keys.items():
        for secret in secrets:
            assert Door(secret).request("GET", url, params=DAY).status_code == status
    assert Door().request("GET", url).status_code in (401, 403)


@pytest.mark.parametrize("path", ["usage/completions", "usage/embeddings", "costs"])
def test_openais_reports_take_an_admin_key(acme: Tenant, path: str) -> None:
    url = f"/v1/organization/{path}"
    without = admin_key(acme, frozenset({Permission.WEBHOOKS_READ}))

    assert Door(admin_key(acme)).request("GET", url, params=UNIX_DAY).status_code == 200
    assert Door(without).request("GET", url, params=UNIX_DAY).status_code == 403
    assert Door(acme.secret).request("GET", url, params=UNIX_DAY).status_code == 403
    assert Door().request("GET", url).status_code == 401
