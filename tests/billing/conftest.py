"""What tests of money start from: acme, with 5 units of currency."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # its modules need django.setup(), which comes after this file
    from tests.billing.cast import Tenant


@pytest.fixture
def acme(django_database: object) -> "Tenant":
    """The tenant whose money it is."""
    from tests.billing.cast import make_tenant

    return make_tenant("acme")


@pytest.fixture
def globex(django_database: object) -> "Tenant":
    """The tenant who must see nothing of it."""
    from tests.billing.cast import make_tenant

    return make_tenant("globex")
