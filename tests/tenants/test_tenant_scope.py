"""The scope shows one tenant's rows, for one transaction, and the managers insist on it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from uuid import uuid4

import pytest
from django.db import ProgrammingError, connections, transaction
from django.db.models import Count

from tenants.contracts import Role, ScopeMissing
from tenants.facade import add_member, create_project, tenant_scope
from tenants.models import ApiKey, Membership, OrganizationRow, Project, User
from tests.tenants.cast import Tenant, make_tenant


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """The tenant who looks."""
    return make_tenant("acme")


@pytest.fixture
def globex(django_database: object) -> Tenant:
    """The tenant who must not be seen."""
    return make_tenant("globex")


def raw_count(table: str) -> int:
    """Rows that raw SQL sees on this thread's connection of role app."""
    with connections["default"].cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")
        counted: int = cursor.fetchone()[0]
    return counted


def backend() -> int:
    """Which server process serves this thread's connection."""
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid: int = cursor.fetchone()[0]
    return pid


def test_a_scope_shows_its_tenant_and_nobody_else(acme: Tenant, globex: Tenant) -> None:
    with tenant_scope(acme.organization_id):
        assert [key.id for key in ApiKey.objects.all()] == [acme.key_id]
        assert [row.slug for row in OrganizationRow.objects.all()] == [acme.slug]
        assert not ApiKey.objects.filter(id=globex.key_id).exists()


USES: list[Callable[[], object]] = [
    lambda: list(Project.objects.all()),
    Project.objects.count,
    Project.objects.first,
    lambda: Project.objects.filter(name="x").exists(),
    lambda: Project.objects.get(id=uuid4()),
    lambda: Project.objects.values_list("id", flat=True)[0],
    lambda: Project.objects.aggregate(Count("id")),
    lambda: list(Project.objects.iterator()),
    lambda: Project.objects.filter(name="x").update(name="y"),
    lambda: Project.objects.filter(name="x").delete(),
    lambda: Project.objects.create(name="x"),
    lambda: Project.objects.bulk_create([Project(name="x")]),
    lambda: Project.objects.in_bulk([uuid4()]),
    lambda: Project(id=uuid4(), name="x").refresh_from_db(),
]


@pytest.mark.parametrize("use", USES)
def test_the_orm_refuses_to_run_outside_a_scope(
    django_database: object, use: Callable[[], object]
) -> None:
    with pytest.raises(ScopeMissing):
        use()


def test_following_a_relation_needs_the_scope_too(acme: Tenant) -> None:
    with tenant_scope(acme.organization_id):
        key = ApiKey.objects.get(id=acme.key_id)

    with pytest.raises(ScopeMissing):
        assert key.project


def test_a_lazy_queryset_runs_in_the_scope_it_is_read_in(acme: Tenant) -> None:
    lazy = Project.objects.all()

    with tenant_scope(acme.organization_id):
        assert [project.id for project in lazy] == [acme.project_id]


def test_raw_sql_without_a_scope_sees_nothing(acme: Tenant) -> None:
    assert raw_count("tenants_api_key") == 0
    assert raw_count("tenants_organization") == 0


def test_a_reused_connection_forgets_the_tenant(acme: Tenant, globex: Tenant) -> None:
    process = backend()
    with tenant_scope(acme.organization_id):
        assert [key.id for key in ApiKey.objects.all()] == [acme.key_id]
    with tenant_scope(globex.organization_id):
        assert [key.id for key in ApiKey.objects.all()] == [globex.key_id]

    assert raw_count("tenants_api_key") == 0
    assert backend() == process


def test_a_failed_scope_leaves_no_tenant_behind(acme: Tenant) -> None:
    process = backend()
    with pytest.raises(ZeroDivisionError), tenant_scope(acme.organization_id):
        raise ZeroDivisionError

    assert raw_count("tenants_api_key") == 0
    assert backend() == process
    with pytest.raises(ScopeMissing):
        Project.objects.count()


def test_a_connection_back_from_the_pool_knows_no_tenant(acme: Tenant) -> None:
    with tenant_scope(acme.organization_id):
        assert raw_count("tenants_api_key") == 1
    connections["default"].close()

    assert raw_count("tenants_api_key") == 0


def test_the_same_scope_may_be_entered_again(acme: Tenant) -> None:
    with tenant_scope(acme.organization_id):
        create_project(acme.organization_id, "inner")
        assert Project.objects.count() == 2


def test_another_tenants_scope_may_not(acme: Tenant, globex: Tenant) -> None:
    with (
        tenant_scope(acme.organization_id),
        pytest.raises(ScopeMissing, match="another organization"),
        tenant_scope(globex.organization_id),
    ):
        pass


def test_a_scope_is_the_outermost_transaction(acme: Tenant) -> None:
    with (
        transaction.atomic(),
        pytest.raises(RuntimeError, match="durable"),
        tenant_scope(acme.organization_id),
    ):
        pass


def test_another_thread_is_outside_the_scope(acme: Tenant) -> None:
    def look() -> int:
        try:
            return Project.objects.count()
        finally:
            connections.close_all()

    with tenant_scope(acme.organization_id), ThreadPoolExecutor(1) as pool:
        answer = pool.submit(copy_context().run, look)

        with pytest.raises(ScopeMissing):
            answer.result(timeout=30)


def test_a_row_for_another_tenant_cannot_be_written(acme: Tenant, globex: Tenant) -> None:
    with (
        pytest.raises(ProgrammingError, match="row-level security"),
        tenant_scope(acme.organization_id),
    ):
        Project.objects.create(organization_id=globex.organization_id, name="planted")


def test_a_row_of_another_tenant_cannot_be_changed(acme: Tenant, globex: Tenant) -> None:
    with tenant_scope(acme.organization_id):
        changed = Project.objects.filter(id=globex.project_id).update(name="stolen")

    assert changed == 0


def test_a_user_logs_in_by_address_and_joins_organizations(acme: Tenant) -> None:
    address = f"Ada-{uuid4().hex[:8]}@Example.org"
    user = User.objects.db_manager("housekeeper").create_user(address, "correct horse")

    add_member(acme.organization_id, user.id, Role.OWNER)
    with tenant_scope(acme.organization_id):
        roles = list(Membership.objects.values_list("user_id", "role"))

    assert user.get_username() == address.lower()
    assert user.check_password("correct horse")
    assert roles == [(user.id, "owner")]


def test_a_user_needs_an_address(django_database: object) -> None:
    with pytest.raises(ValueError, match="address"):
        User.objects.create_user("")
