"""The audit log on a page: what was done is there, filters narrow it, a broken chain is named."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from html import unescape
from uuid import uuid4

import pytest
from django.test import override_settings

from headrace.tenant_console.audit.log import ENTRIES_SHOWN_MAX
from tenants import facade
from tenants.contracts import Role
from tests.headrace.door import Door, member_of
from tests.tenants.cast import Tenant, make_tenant
from tests.tenants.test_audit import tampering


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """The organization whose log this is."""
    return make_tenant("acme")


@pytest.fixture
def owner(acme: Tenant) -> Door:
    """Its owner, who has just signed in."""
    return member_of(acme.organization_id, Role.OWNER)


def shown(door: Door, tenant: Tenant, query: str = "") -> list[int]:
    """The numbers of the entries on the page, from top to bottom."""
    answer = door.get(f"/console/{tenant.slug}/audit?{query}")
    assert answer.status_code == 200, answer.text
    parts = answer.text.split('id="entry-')[1:]
    return [int(part.partition('"')[0]) for part in parts]


def sequences(tenant: Tenant, **wanted: object) -> list[int]:
    """What the API lists."""
    found = facade.list_audit(
        facade.operator_of(tenant.organization_id),
        facade.AuditFilter(**wanted),  # type: ignore[arg-type]  # the test names fields
    )
    return [entry.sequence for entry in found]


def test_the_page_lists_what_the_api_lists(acme: Tenant, owner: Door) -> None:
    made = owner.post(
        f"/console/{acme.slug}/keys/new",
        data={"do": "create", "name": "n", "project_id": str(acme.project_id), "scopes": "chat"},
    )
    page = owner.get(f"/console/{acme.slug}/audit").text
    email = owner.get("/api/v1/me").json()["email"]

    assert made.status_code == 200
    assert shown(owner, acme) == sequences(acme)
    assert "key.created" in page
    assert email in page


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("action=key.created", {"actions": ("key.created",)}),
        ("kind=project", {"target_kind": "project"}),
        ("action=no.such", {"actions": ("no.such",)}),
    ],
)
def test_filters_narrow_it(
    acme: Tenant, owner: Door, query: str, wanted: dict[str, object]
) -> None:
    assert shown(owner, acme, query) == sequences(acme, **wanted)
    assert len(shown(owner, acme, query)) < len(shown(owner, acme))


def test_who_and_what_are_filters_too(acme: Tenant, owner: Door) -> None:
    user_id = owner.get("/api/v1/me").json()["id"]
    owner.post(f"/console/{acme.slug}/keys/{acme.key_id}", data={"do": "revoke", "confirm": "test"})

    assert shown(owner, acme, f"actor={user_id}") == sequences(acme)[:1]
    assert shown(owner, acme, f"object={acme.key_id}") == sequences(
        acme, target_id=str(acme.key_id)
    )


def test_days_are_whole_and_inclusive(acme: Tenant, owner: Door) -> None:
    today = datetime.now(UTC).date()
    tomorrow = today + timedelta(days=1)

    assert shown(owner, acme, f"since={today}&until={tomorrow}") == sequences(acme)
    assert shown(owner, acme, f"until={today - timedelta(days=1)}") == []


@pytest.mark.parametrize("query", ["since=yesterday", "until=2026-13-01", "action=" + "x" * 200])
def test_a_bad_filter_is_said_beside_its_field(acme: Tenant, owner: Door, query: str) -> None:
    answer = owner.get(f"/console/{acme.slug}/audit?{query}")

    assert answer.status_code == 422
    assert f'id="id_{query.partition("=")[0]}_error"' in answer.text


def test_long_logs_have_pages_that_keep_the_filter(acme: Tenant, owner: Door) -> None:
    operator = facade.operator_of(acme.organization_id)
    with facade.tenant_scope(acme.organization_id):
        for _ in range(ENTRIES_SHOWN_MAX + 5):
            facade.record_audit(operator, "test.done", "test", uuid4())
    first = owner.get(f"/console/{acme.slug}/audit?action=test.done").text
    [href] = [
        part.split('"')[0] for part in first.split('href="') if "after=" in part.split('"')[0]
    ]
    query = href.partition("?")[2].replace("&amp;", "&")

    assert len(shown(owner, acme, unescape(query))) == 5


def file_of(door: Door, tenant: Tenant, query: str = "") -> list[dict[str, str]]:
    """The rows of the file of these filters."""
    answer = door.get(f"/console/{tenant.slug}/audit.csv?{query}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"] == 'attachment; filename="audit.csv"'
    return list(csv.DictReader(io.StringIO(answer.text, newline="")))


@pytest.mark.parametrize(
    ("query", "asked"), [("", ""), ("action=key.created&kind=key", "actions[]=key.created")]
)
def test_the_file_is_what_the_api_says(acme: Tenant, owner: Door, query: str, asked: str) -> None:
    owner.post(
        f"/console/{acme.slug}/keys/new",
        data={"do": "create", "name": "n", "project_id": str(acme.project_id), "scopes": "chat"},
    )
    told = owner.get(f"/api/v1/organizations/{acme.organization_id}/audit_log?{asked}").json()

    found = file_of(owner, acme, query)

    assert not told["has_more"]
    assert [
        {"object": "audit_log.entry", **row, "details": json.loads(row["details"])} for row in found
    ] == [
        {name: value if name == "details" else text_of(value) for name, value in entry.items()}
        for entry in told["data"]
    ]


def text_of(value: object) -> str:
    """A value of the API in a cell."""
    return "" if value is None else str(value)


def test_a_file_is_whole_and_holds_no_formula(acme: Tenant, owner: Door) -> None:
    operator = facade.operator_of(acme.organization_id)
    with facade.tenant_scope(acme.organization_id):
        for _ in range(ENTRIES_SHOWN_MAX + 5):
            facade.record_audit(operator, "test.done", "test", "=1+1")

    found = file_of(owner, acme, "action=test.done")

    assert [row["target_id"] for row in found] == ["'=1+1"] * (ENTRIES_SHOWN_MAX + 5)


def test_a_file_that_would_be_too_long_or_of_bad_filters_is_refused(
    acme: Tenant, owner: Door
) -> None:
    entries = len(sequences(acme))
    path = f"/console/{acme.slug}/audit.csv"

    with override_settings(AUDIT_CSV_ROWS_MAX=entries):
        assert owner.get(path).headers["content-type"].startswith("text/csv")
    with override_settings(AUDIT_CSV_ROWS_MAX=entries - 1):
        long = owner.get(path)
    bad = owner.get(f"{path}?since=yesterday")

    assert (long.status_code, bad.status_code) == (422, 422)
    assert f"A file has at most {entries - 1} entries." in long.text
    assert 'id="id_since_error"' in bad.text


def test_the_page_leads_to_the_file_of_its_filters(acme: Tenant, owner: Door) -> None:
    page = owner.get(f"/console/{acme.slug}/audit?action=key.created&kind=").text

    assert f'href="/console/{acme.slug}/audit.csv?action=key.created"' in page


def test_the_chain_is_checked_on_demand(acme: Tenant, owner: Door) -> None:
    whole = owner.get(f"/console/{acme.slug}/audit?verdict=1").text
    entries = len(sequences(acme))
    assert f"valid until entry {entries}" in whole


def test_a_broken_chain_says_where(acme: Tenant, owner: Door) -> None:
    with tampering(acme.organization_id) as cursor:
        cursor.execute("UPDATE tenants_audit_log SET ip = '198.51.100.1' WHERE sequence = 3")
    broken = owner.get(f"/console/{acme.slug}/audit?verdict=1").text
    with tampering(acme.organization_id) as cursor:
        # `reconcile` of other tests looks at every chain.
        cursor.execute("DELETE FROM tenants_audit_log")
        cursor.execute("DELETE FROM tenants_audit_head")

    assert "broken after entry 2: entry 3 was changed" in broken
