"""How much of the database's time a page takes: no page asks more than so many questions."""

from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext

from headrace.standalone.data_folder import DataFolder
from headrace.standalone.seed import seed_offer
from inference.tokenizer.bundle import load_bundle
from tenants.contracts import Role
from tests.console.furnishing import Furnished, furnished_organization
from tests.console.registry import RailPage, rail_pages
from tests.headrace.door import member_of

pytestmark = pytest.mark.usefixtures("django_database")
QUERIES_MAX = 40
TRANSACTION_WORDS = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE")


@pytest.fixture(scope="module")
def full(django_database: DataFolder) -> Furnished:
    """An organization with something of everything: what asks once for each row asks often."""
    bundle = load_bundle(settings.MODEL_BUNDLE)
    seed_offer(bundle)
    return furnished_organization(bundle.name)


@pytest.mark.parametrize("rail_page", rail_pages(), ids=lambda one: one.route)
def test_a_page_asks_few_questions(rail_page: RailPage, full: Furnished) -> None:
    client = Client(SERVER_NAME=urlsplit(settings.PUBLIC_URL).hostname)
    owner = member_of(full.organization_id, Role.OWNER)
    client.cookies[settings.SESSION_COOKIE_NAME] = owner.session_key
    path = rail_page.path(full.slug)
    with CaptureQueriesContext(connections["default"]) as captured:
        answer = client.get(path)
    asked = [
        query["sql"]
        for query in captured.captured_queries
        if not query["sql"].startswith(TRANSACTION_WORDS)
    ]

    assert answer.status_code == 200
    assert 0 < len(asked) <= QUERIES_MAX, "\n".join(asked)
