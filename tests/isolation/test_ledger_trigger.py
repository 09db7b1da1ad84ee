"""An unbalanced ledger transaction cannot commit, whoever writes it and whatever is in scope.

Role `app` may not write the ledger at all, so these write as the tables' owner: like the app it is
bound by the policies, so a trigger that ran as it would see nothing once the scope is gone.
"""

import os
from collections.abc import Iterator
from uuid import UUID, uuid4

import psycopg
import pytest

from billing.facade import reconcile
from tests.billing.cast import Tenant, make_tenant


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """The tenant whose ledger it is."""
    return make_tenant("acme")


@pytest.fixture
def owner(django_database: object) -> Iterator[psycopg.Connection]:
    """A raw connection of the tables' owner, each test its own transaction."""
    with psycopg.connect(os.environ["DATABASE_OWNER_URL"]) as connection:
        yield connection
        connection.rollback()


def scope(connection: psycopg.Connection, organization_id: UUID | None) -> None:
    """Enter a tenant's scope within the transaction, or leave it."""
    connection.execute(
        "SELECT set_config('headrace.organization_id', %s, true)",
        [str(organization_id) if organization_id else ""],
    )


def write(connection: psycopg.Connection, tenant: Tenant, **amounts: int) -> UUID:
    """A ledger transaction with these legs by kind of account; not committed."""
    tx = uuid4()
    connection.execute(
        "INSERT INTO billing_ledger_tx (id, organization_id, idempotency_key, kind)"
        " VALUES (%s, %s, %s, 'grant')",
        [tx, tenant.organization_id, str(tx)],
    )
    for kind, amount in amounts.items():
        written = connection.execute(
            "INSERT INTO billing_ledger_leg"
            " (id, organization_id, transaction_id, account_id, amount_pico)"
            " SELECT uuidv7(), organization_id, %s, id, %s FROM billing_ledger_account"
            "  WHERE kind = %s",
            [tx, amount, kind],
        )
        assert written.rowcount == 1
    return tx


def committed(owner: psycopg.Connection, tenant: Tenant, tx: UUID) -> bool:
    """Whether the transaction is on the ledger."""
    scope(owner, tenant.organization_id)
    found = owner.execute("SELECT FROM billing_ledger_tx WHERE id = %s", [tx]).rowcount
    owner.rollback()
    return found == 1


def test_a_balanced_transaction_commits(owner: psycopg.Connection, acme: Tenant) -> None:
    scope(owner, acme.organization_id)
    tx = write(owner, acme, revenue=5, write_off=-5)
    owner.commit()

    assert committed(owner, acme, tx)
    assert reconcile() == []


def test_an_unbalanced_transaction_does_not(owner: psycopg.Connection, acme: Tenant) -> None:
    scope(owner, acme.organization_id)
    tx = write(owner, acme, revenue=5, write_off=-4)

    with pytest.raises(psycopg.errors.CheckViolation, match="do not sum to zero"):
        owner.commit()
    assert not committed(owner, acme, tx)


def test_nor_after_its_scope_is_gone(owner: psycopg.Connection, acme: Tenant) -> None:
    scope(owner, acme.organization_id)
    tx = write(owner, acme, revenue=5)
    scope(owner, None)
    assert owner.execute("SELECT FROM billing_ledger_leg").rowcount == 0

    with pytest.raises(psycopg.errors.CheckViolation, match="do not sum to zero"):
        owner.commit()
    assert not committed(owner, acme, tx)


def test_nor_under_another_tenants_scope(owner: psycopg.Connection, acme: Tenant) -> None:
    globex = make_tenant("globex")
    scope(owner, acme.organization_id)
    tx = write(owner, acme, revenue=5)
    scope(owner, globex.organization_id)

    with pytest.raises(psycopg.errors.CheckViolation, match="do not sum to zero"):
        owner.commit()
    assert not committed(owner, acme, tx)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE billing_ledger_leg SET amount_pico = amount_pico + 1 WHERE amount_pico > 0",
        "DELETE FROM billing_ledger_leg WHERE amount_pico > 0",
    ],
)
def test_no_later_change_unbalances_it(
    owner: psycopg.Connection, acme: Tenant, change: str
) -> None:
    scope(owner, acme.organization_id)
    assert owner.execute(change.encode()).rowcount == 1

    with pytest.raises(psycopg.errors.CheckViolation, match="do not sum to zero"):
        owner.commit()
    assert reconcile() == []


def test_a_leg_stays_inside_its_tenant(owner: psycopg.Connection, acme: Tenant) -> None:
    globex = make_tenant("globex")
    scope(owner, acme.organization_id)
    tx = write(owner, acme)
    scope(owner, globex.organization_id)

    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="billing_leg_in_its_tx"):
        owner.execute(
            "INSERT INTO billing_ledger_leg"
            " (id, organization_id, transaction_id, account_id, amount_pico)"
            " SELECT uuidv7(), organization_id, %s, id, 5 FROM billing_ledger_account LIMIT 1",
            [tx],
        )


def test_the_trigger_runs_as_the_role_that_bypasses_policies(
    owner: psycopg.Connection,
) -> None:
    row = owner.execute(
        "SELECT p.prosecdef, r.rolname, r.rolbypassrls, r.rolcanlogin, t.tgdeferrable,"
        " t.tginitdeferred FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid"
        " JOIN pg_roles r ON r.oid = p.proowner WHERE t.tgname = 'billing_ledger_balanced'"
    ).fetchone()

    assert row == (True, "headrace_definer", True, False, True, True)
