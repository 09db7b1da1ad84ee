"""An organization that is erased leaves nothing of its bulk work, and nobody else loses any."""

import pytest
from django.db import connections

from batch_jobs import erasure
from batch_jobs.facade import forget_jobs
from batch_jobs.files import storage
from batch_jobs.models import StoredFile
from tests.batch_jobs.cast import Tenant, make_tenant
from tests.isolation.bulk_traces import leave_bulk_work

pytestmark = pytest.mark.usefixtures("django_database")
TABLES = ("file", "job", "summary_plan", "progress", "item", "attempt")


def rows_of(tenant: Tenant) -> dict[str, int]:
    counts: dict[str, int] = {}
    with connections["housekeeper"].cursor() as cursor:
        for table in TABLES:
            cursor.execute(
                f"SELECT count(*) FROM bulk_{table} WHERE organization_id = %s",
                [tenant.organization_id],
            )
            counts[table] = cursor.fetchone()[0]
    return counts


def names_of(tenant: Tenant) -> list[str]:
    files = StoredFile.objects.using("housekeeper").filter(organization_id=tenant.organization_id)
    return list(files.values_list("storage_name", flat=True))


def test_files_jobs_and_items_go_with_their_organization(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "ITEMS_PAGE", 1)  # more than one page
    leaving, staying = make_tenant("leaving"), make_tenant("staying")
    for tenant in (leaving, leaving, staying):
        leave_bulk_work(tenant.organization_id, tenant.project_id)
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO bulk_item (organization_id, job_id, line, custom_id, place, source_id,"
            " source_offset, source_bytes, part, parts_left, copies, bound_pico, state, retry_at,"
            " lease_token, attempts, prompt_tokens, cached_tokens, completion_tokens, charge_pico)"
            " SELECT organization_id, job_id, 2, 'b', place, source_id, source_offset,"
            " source_bytes, part, parts_left, copies, bound_pico, state, retry_at, lease_token,"
            " attempts, prompt_tokens, cached_tokens, completion_tokens, charge_pico"
            " FROM bulk_item WHERE organization_id = %s",
            [leaving.organization_id],
        )
    assert rows_of(leaving) == dict.fromkeys(TABLES, 2) | {"item": 4}
    names, others = names_of(leaving), names_of(staying)

    forget_jobs(leaving.organization_id)
    forget_jobs(leaving.organization_id)

    assert rows_of(leaving) == dict.fromkeys(TABLES, 0)
    assert not [name for name in names if storage.storage().exists(name)]
    assert rows_of(staying) == dict.fromkeys(TABLES, 1)
    assert [name for name in others if storage.storage().exists(name)] == others
