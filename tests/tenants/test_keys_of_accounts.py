"""The key of a service account by its name: made once, and again when it was taken away."""

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from django.db import connections

from tenants import facade
from tenants.contracts import KeySettings, Role, TenantConflict, TenantObjectNotFound
from tests.headrace.door import new_user
from tests.house import Tenant, new_tenant

pytestmark = pytest.mark.usefixtures("django_database")
SETTINGS = KeySettings("Console")


@pytest.fixture
def acme() -> Tenant:
    return new_tenant()


def key_of(tenant: Tenant, project_id: UUID | None = None) -> UUID:
    actor = facade.operator_of(tenant.organization_id)
    return facade.key_of_service_account(actor, project_id or tenant.project_id, SETTINGS)


def test_it_is_made_once_and_belongs_to_the_projects_account(acme: Tenant) -> None:
    key_id = key_of(acme)
    actor = facade.operator_of(acme.organization_id)
    [account] = facade.list_service_accounts(actor, acme.project_id)

    assert key_of(acme) == key_id
    assert facade.read_key(actor, key_id).service_account_id == account.service_account_id
    assert facade.key_names(actor, [key_id, acme.key_id]) == {
        key_id: "Console",
        acme.key_id: "test",
    }


def test_many_first_uses_make_one(acme: Tenant) -> None:
    def use(_: int) -> UUID:
        try:
            return key_of(acme)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(use, range(4)))) == 1


def test_a_key_that_only_has_the_name_is_not_it(acme: Tenant) -> None:
    named = facade.issue_key(acme.organization_id, acme.project_id, "Console", using="housekeeper")

    assert key_of(acme) != named.key_id


def test_one_that_was_revoked_or_disabled_is_replaced(acme: Tenant) -> None:
    actor = facade.operator_of(acme.organization_id)
    first = key_of(acme)
    facade.revoke_key_as(actor, first)
    second = key_of(acme)
    account_id = facade.read_key(actor, second).service_account_id
    assert account_id is not None
    facade.disable_service_account(actor, account_id)

    assert len({first, second, key_of(acme)}) == 3


def test_no_project_of_another_organization_has_one(acme: Tenant) -> None:
    with pytest.raises(TenantObjectNotFound):
        key_of(acme, new_tenant().project_id)


def test_an_archived_project_gets_none(acme: Tenant) -> None:
    facade.archive_project(acme.organization_id, acme.project_id)

    with pytest.raises(TenantConflict):
        key_of(acme)


def test_a_developer_makes_it_at_the_first_use(acme: Tenant) -> None:
    user_id = new_user()
    facade.add_member(acme.organization_id, user_id, Role.DEVELOPER)
    actor = facade.actor_for_user(user_id, acme.organization_id, has_second_factor=False)
    key_id = facade.key_of_service_account(actor, acme.project_id, SETTINGS)

    assert facade.read_key(actor, key_id).created_by == user_id
