"""What the matrices leave: jobs of every state that no pump has touched, which no ledger knows."""

from collections.abc import Iterator

import pytest

from tests.leftovers import forget_bulk_work


@pytest.fixture(scope="module", autouse=True)
def no_bulk_work_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Goes with the module that made it."""
    yield
    wanted = [name for mark in request.node.iter_markers("usefixtures") for name in mark.args]
    forget_bulk_work(wanted)
