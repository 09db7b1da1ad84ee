"""What tests of bulk jobs start from: acme, globex, and an empty queue."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from django.db import connections

from headrace.standalone.data_folder import DataFolder

if TYPE_CHECKING:  # its modules need django.setup(), which comes after this file
    from tests.batch_jobs.cast import Tenant


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that pump by hand come before any house: its worker would claim their items."""
    items.sort(key=lambda item: "queue" not in getattr(item, "fixturenames", ()))


@pytest.fixture(autouse=True)
def no_bulk_work_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test planted or had answered by a script agrees with no ledger: it goes with it."""
    yield
    names = request.fixturenames
    if "django_database" in names and not {"house", "own_house"} & set(names):
        with connections["housekeeper"].cursor() as cursor:
            for table in ("attempt", "item", "progress", "summary_plan", "job", "file"):
                cursor.execute(f"DELETE FROM bulk_{table}")


@pytest.fixture
def queue(django_database: DataFolder) -> Iterator[None]:
    """No worker runs: these tests pump by hand.

    Leaves an empty queue behind, since a claim takes the items of any tenants.
    """
    yield
    drain()


def drain() -> None:
    """Fails whatever a test left unfinished."""
    from batch_jobs import items, leases

    with connections["owner"].cursor() as cursor:
        cursor.execute("SET ROLE headrace_definer")
        cursor.execute(
            "UPDATE summary_item SET state = 'queued', retry_at = now(), lease_expires_at = NULL"
            " WHERE state IN ('leased', 'answered')"
            " OR (state = 'queued' AND retry_at > now())"
        )
        cursor.execute("RESET ROLE")
    while claimed := leases.claim(1000, 60):
        for item in claimed:
            items.fail(item, "test_over", "the test is over")


@pytest.fixture
def acme(queue: None) -> "Tenant":
    """The tenant whose job it is."""
    from tests.batch_jobs.cast import make_tenant

    return make_tenant("acme")


@pytest.fixture
def globex(queue: None) -> "Tenant":
    """The tenant who must see nothing of it."""
    from tests.batch_jobs.cast import make_tenant

    return make_tenant("globex")
