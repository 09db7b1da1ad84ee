"""Creating and reading jobs, and the wall between tenants."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.db import IntegrityError, ProgrammingError, connections, transaction

from batch_jobs.contracts import InputInvalid, JobNotFound
from batch_jobs.facade import create_summary_job, read_items, read_job
from batch_jobs.models import SummaryItem, SummaryJob
from tenants.facade import tenant_scope
from tests.batch_jobs.cast import Tenant


def jobs_of(tenant: Tenant) -> int:
    with tenant_scope(tenant.organization_id):
        return SummaryJob.objects.count()


def test_items_are_read_in_the_order_of_the_input(acme: Tenant) -> None:
    names = [f"doc-{number}" for number in range(600)]
    job_id = acme.submit(*names)

    items = list(read_items(acme.organization_id, job_id))
    assert [item.custom_id for item in items] == names
    assert {item.state for item in items} == {"queued"}


def test_another_tenants_job_is_not_found(acme: Tenant, globex: Tenant) -> None:
    job_id = acme.submit("a")

    for missing in (job_id, uuid4()):
        with pytest.raises(JobNotFound):
            read_job(globex.organization_id, missing)
        with pytest.raises(JobNotFound):
            list(read_items(globex.organization_id, missing))


@pytest.mark.parametrize("names", [[], ["a", "b", "a"]])
def test_an_invalid_input_leaves_no_job_behind(acme: Tenant, names: list[str]) -> None:
    with pytest.raises(InputInvalid):
        acme.submit(*names)

    assert jobs_of(acme) == 0


def test_an_input_that_breaks_off_leaves_no_job_behind(acme: Tenant) -> None:
    def documents() -> Iterator[tuple[str, str]]:
        yield "a", "text"
        raise InputInvalid("line 2: not JSON")

    with pytest.raises(InputInvalid, match="line 2"):
        create_summary_job(
            acme.organization_id,
            acme.project_id,
            acme.key_id,
            documents(),
            model="small",
            documents_max=10,
        )

    assert jobs_of(acme) == 0


def test_more_documents_than_allowed_are_refused(acme: Tenant) -> None:
    with pytest.raises(InputInvalid, match="more than 2 documents"):
        create_summary_job(
            acme.organization_id,
            acme.project_id,
            acme.key_id,
            [("a", "x"), ("b", "x"), ("c", "x")],
            model="small",
            documents_max=2,
        )


def test_a_job_cannot_use_another_tenants_key(acme: Tenant, globex: Tenant) -> None:
    with pytest.raises(IntegrityError, match="summary_job_key_of_its_tenant"):
        create_summary_job(
            acme.organization_id,
            acme.project_id,
            globex.key_id,
            [("a", "x")],
            model="small",
            documents_max=2,
        )


@pytest.mark.parametrize("table", ["summary_job", "summary_item"])
def test_raw_sql_without_a_scope_sees_and_changes_nothing(acme: Tenant, table: str) -> None:
    acme.submit("a")

    with connections["default"].cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")
        assert cursor.fetchone() == (0,)
        cursor.execute(f"UPDATE {table} SET charge_pico = 1")
        assert cursor.rowcount == 0


def test_an_item_cannot_join_another_tenants_job(acme: Tenant, globex: Tenant) -> None:
    job_id = acme.submit("a")

    with (
        pytest.raises(IntegrityError, match="summary_item_job_of_its_tenant"),
        tenant_scope(globex.organization_id),
    ):
        SummaryItem.objects.create(
            organization_id=globex.organization_id, job_id=job_id, custom_id="z", document="z"
        )


@pytest.mark.parametrize("column", ["lease_token", "request_id", "organization_id", "job_id"])
def test_the_app_role_moves_fencing_numbers_only_through_the_claim(
    acme: Tenant, column: str
) -> None:
    with (
        pytest.raises(ProgrammingError, match="permission denied"),
        transaction.atomic(),
        connections["default"].cursor() as cursor,
    ):
        cursor.execute(f"UPDATE summary_item SET {column} = {column}")
