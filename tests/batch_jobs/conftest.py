"""What tests of bulk jobs start from: acme, globex, and an empty queue."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from headrace.standalone.data_folder import DataFolder
from tests.leftovers import forget_bulk_work

if TYPE_CHECKING:  # its modules need django.setup(), which comes after this file
    from tests.batch_jobs.cast import Tenant


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that pump by hand come before any house: its worker would claim their items."""
    items.sort(key=lambda item: "queue" not in getattr(item, "fixturenames", ()))


@pytest.fixture(autouse=True)
def no_bulk_work_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test planted or had answered by a script agrees with no ledger: it goes with it."""
    yield
    forget_bulk_work(request.fixturenames)


@pytest.fixture
def queue(django_database: DataFolder) -> None:
    """No worker runs: these tests pump by hand, and a claim takes the items of any tenants."""


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
