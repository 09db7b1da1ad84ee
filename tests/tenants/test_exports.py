"""An export holds what the tenant may see, nothing of anybody else's, and no secret."""

import io
import json
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections

from tenants import facade
from tenants.contracts import PermissionDenied, Role
from tenants.contracts.retention import ExportNotFound, ExportPending
from tenants.models import Export, ExportPart
from tenants.retention import exports
from tenants.retention.exports import write_due_export
from tenants.retention.sweeping import sweep_retention
from tests.billing.cast import at_once, make_tenant
from tests.tenants.people_cast import Company, make_company


@pytest.fixture
def acme(django_database: object) -> Iterator[Company]:
    """Who takes its data out; nobody else's export waits."""
    written()
    yield make_company("acme")
    written()


def written() -> None:
    """The task has nothing left to do."""
    while write_due_export(datetime.now(UTC)):
        pass


def downloaded(company: Company) -> dict[str, list[dict[str, Any]]]:
    """The files of a fresh export, parsed."""
    asked = facade.request_export(company.owner)
    written()
    ready = facade.open_export(company.owner, asked.export_id)
    parts: list[bytes] = []
    while part := facade.export_part(company.owner, asked.export_id, len(parts)):
        parts.append(part)
    content = b"".join(parts)
    assert ready.size_bytes == len(content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        return {
            name: [json.loads(line) for line in archive.read(name).splitlines()]
            for name in archive.namelist()
        }


def test_an_export_holds_what_is_the_tenants_and_nothing_else(acme: Company) -> None:
    globex = make_company("globex")
    tenant_id = acme.tenant.organization_id
    request_id = uuid4()
    facade.keep_exchange(tenant_id, acme.tenant.project_id, request_id, b"asked", b"told", 7)
    facade.keep_exchange(
        globex.tenant.organization_id, globex.tenant.project_id, uuid4(), b"their", b"own", 7
    )

    files = downloaded(acme)

    assert [row["id"] for row in files["tenants_organization.jsonl"]] == [str(tenant_id)]
    assert [row["id"] for row in files["tenants_api_key.jsonl"]] == [str(acme.tenant.key_id)]
    assert {row["email"] for row in files["members.jsonl"]} == {
        person.email for person in acme.people.values()
    }
    [exchange] = files["exchanges.jsonl"]
    assert (exchange["prompt"], exchange["answer"]) == ("asked", "told")
    for name, rows in files.items():
        for row in rows:
            assert row.get("organization_id", str(tenant_id)) == str(tenant_id), name
    for table in ("tenants_audit_log", "billing_usage_event", "billing_ledger_leg", "bulk_item"):
        assert f"{table}.jsonl" in files


def test_an_export_holds_no_hash_seal_or_secret(acme: Company) -> None:
    made = facade.create_webhook_endpoint(acme.owner, "https://example.com/hook")
    files = downloaded(acme)

    text = json.dumps(files)
    columns = {column for rows in files.values() for row in rows for column in row}
    assert made.secret not in text
    assert acme.tenant.secret not in text
    assert not any(name.endswith(("_hash", "_sealed")) or name == "hash" for name in columns)
    assert files["tenants_webhook_endpoint.jsonl"][0]["url"] == "https://example.com/hook"


def test_amounts_in_an_export_are_exact_text(acme: Company) -> None:
    tenant = make_tenant("acme", credit_pico=10**20 + 1)
    company = Company(acme.tenant, acme.people)
    assert company.tenant.organization_id != tenant.organization_id
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "SELECT organization_id FROM billing_account WHERE organization_id = %s",
            [tenant.organization_id],
        )
        assert cursor.fetchone() is not None
    facade.add_member(tenant.organization_id, acme.people[Role.OWNER].user_id, Role.OWNER)
    actor = facade.actor_for_user(
        acme.people[Role.OWNER].user_id, tenant.organization_id, has_second_factor=False
    )
    asked = facade.request_export(actor)
    written()
    part = facade.export_part(actor, asked.export_id, 0)
    assert part is not None
    with zipfile.ZipFile(io.BytesIO(part)) as archive:
        legs = [json.loads(line) for line in archive.read("billing_ledger_leg.jsonl").splitlines()]

    assert sorted(leg["amount_pico"] for leg in legs) == sorted([str(10**20 + 1), f"-{10**20 + 1}"])


def test_of_many_asked_at_once_one_is_written(acme: Company) -> None:
    owner = acme.owner

    def ask() -> bool:
        try:
            facade.request_export(owner)
        except ExportPending:
            return False
        return True

    assert sum(at_once([ask] * 8)) == 1
    at_once([written] * 3)
    [export] = facade.list_exports(owner)
    assert export.state == "ready"
    assert ExportPart.objects.using("housekeeper").filter(export_id=export.export_id).count() == 1


def test_who_may_not_export_gets_nothing(acme: Company) -> None:
    asked = facade.request_export(acme.owner)
    written()
    for act in (
        lambda: facade.request_export(acme.actor(Role.DEVELOPER)),
        lambda: facade.list_exports(acme.actor(Role.BILLING)),
        lambda: facade.export_part(acme.actor(Role.VIEWER), asked.export_id, 0),
    ):
        with pytest.raises(PermissionDenied):
            act()
    globex = make_company("globex")
    with pytest.raises(ExportNotFound):
        facade.open_export(globex.owner, asked.export_id)
    assert facade.export_part(globex.owner, asked.export_id, 0) is None


def test_an_export_is_there_for_a_week_and_then_gone(acme: Company) -> None:
    asked = facade.request_export(acme.owner)
    with pytest.raises(ExportNotFound):
        facade.open_export(acme.owner, asked.export_id)
    written()
    assert facade.read_export(acme.owner, asked.export_id).expires_at > datetime.now(
        UTC
    ) + timedelta(days=6)
    Export.objects.using("housekeeper").filter(id=asked.export_id).update(
        expires_at=datetime.now(UTC)
    )

    with pytest.raises(ExportNotFound):
        facade.read_export(acme.owner, asked.export_id)
    assert facade.export_part(acme.owner, asked.export_id, 0) is None
    sweep_retention()
    assert not ExportPart.objects.using("housekeeper").filter(export_id=asked.export_id).exists()


def test_an_export_that_never_ends_is_given_up(acme: Company) -> None:
    asked = facade.request_export(acme.owner)
    Export.objects.using("housekeeper").filter(id=asked.export_id).update(
        attempts=exports.ATTEMPTS_MAX, lease_expires_at=datetime.now(UTC)
    )
    written()

    assert facade.read_export(acme.owner, asked.export_id).state == "failed"
