"""Replaying the log: every balance rebuilt from its causes in an empty place, and compared.

What usage events, corrections, grants' burns, open holds and every other ledger transaction say is
streamed into tables of its own, summed there, and laid beside what the books hold. A usage event
counts by its tokens and prices, not by its ledger legs, so the two prove each other. Changes
nothing of the books. Called by `manage.py replay`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connections, transaction

from billing.contracts import ReplayReport

DIFFERENCES_MAX = 20
"""Differences told; the first ones are enough to stop and look."""
TEMPORARY = "pg_temp"
SCHEMA = "headrace_replay"
TABLES = """
    CREATE TABLE {schema}.entry
        (organization uuid, transaction_kind text, account text, amount numeric);
    CREATE TABLE {schema}.book (organization uuid, account text, amount numeric)"""
LOG = """
    SELECT e.organization_id, 'usage', leg.account, leg.amount
      FROM (SELECT *, uncached_input_tokens::numeric * input_micros_per_mtok
                    + cached_input_tokens::numeric * cached_input_micros_per_mtok
                    + output_tokens::numeric * output_micros_per_mtok AS computed_pico
              FROM billing_usage_event) e
     CROSS JOIN LATERAL (VALUES ('credit', -e.charge_pico), ('revenue', e.computed_pico),
                                ('write_off', e.charge_pico - e.computed_pico))
        AS leg (account, amount)
     WHERE leg.amount <> 0
    UNION ALL
    SELECT c.organization_id, 'correction', leg.account, leg.amount
      FROM billing_correction c
     CROSS JOIN LATERAL (VALUES ('credit', -c.charged_pico), ('revenue', c.new_pico - c.old_pico),
                                ('write_off', -c.written_off_pico)) AS leg (account, amount)
     WHERE leg.amount <> 0
    UNION ALL
    SELECT t.organization_id, t.kind, a.kind, l.amount_pico
      FROM billing_ledger_tx t
      JOIN billing_ledger_leg l ON l.transaction_id = t.id
      JOIN billing_ledger_account a ON a.id = l.account_id
     WHERE t.kind NOT IN ('usage', 'correction')
    UNION ALL
    SELECT organization_id, 'hold', 'held',
           prompt_tokens::numeric * greatest(input_micros_per_mtok, cached_input_micros_per_mtok)
               + output_tokens_max::numeric * output_micros_per_mtok
      FROM billing_hold WHERE state = 'open'
    UNION ALL
    SELECT organization_id, 'grant', 'grant ' || id, amount_pico FROM billing_credit_grant
    UNION ALL
    SELECT organization_id, 'burn', 'grant ' || grant_id, -amount_pico FROM billing_grant_burn"""
BOOKS = """
    SELECT a.organization_id, 'ledger: ' || a.kind, coalesce(sum(l.amount_pico), 0)
      FROM billing_ledger_account a LEFT JOIN billing_ledger_leg l ON l.account_id = a.id
     GROUP BY a.id
    UNION ALL
    SELECT a.organization_id, balance.name, balance.amount
      FROM billing_account a
     CROSS JOIN LATERAL (VALUES ('posted', a.posted_pico), ('held', a.held_pico),
                                ('funded', a.funded_pico)) AS balance (name, amount)
    UNION ALL
    SELECT organization_id, 'grant ' || id, remaining_pico FROM billing_credit_grant"""
COMPARED = """
    WITH replayed AS (
        SELECT organization, account, sum(amount) AS amount
          FROM (SELECT organization, account, amount FROM {schema}.entry
                 WHERE account = 'held' OR transaction_kind IN ('grant', 'burn')
                       AND account LIKE 'grant %'
                UNION ALL
                SELECT organization, 'ledger: ' || account, amount FROM {schema}.entry
                 WHERE account <> 'held' AND account NOT LIKE 'grant %'
                UNION ALL
                SELECT organization, 'posted', amount FROM {schema}.entry WHERE account = 'credit'
                UNION ALL
                SELECT organization, 'funded', amount FROM {schema}.entry
                 WHERE account = 'credit' AND transaction_kind NOT IN ('usage', 'correction')
               ) AS posting
         GROUP BY 1, 2)
    SELECT organization, account, coalesce(r.amount, 0), coalesce(b.amount, 0)
      FROM replayed r FULL JOIN {schema}.book b USING (organization, account)
     WHERE coalesce(r.amount, 0) <> coalesce(b.amount, 0)
     ORDER BY 1, 2 LIMIT {differences_max}"""


def replay(into: str | None = None, using: str = "housekeeper") -> ReplayReport:
    """Rebuild every balance and compare it, in one snapshot of the books.

    `into` is the address of an empty database, where the tables then stay in a schema of their
    own, `headrace_replay`; without it they are temporary ones of the owner's. Raises
    psycopg.errors.DuplicateSchema where somebody has replayed before.
    """
    schema = SCHEMA if into else TEMPORARY
    with transaction.atomic(using=using, durable=True), connections[using].cursor() as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        with _empty_place(into) as target, target.cursor() as writer:
            for statement in TABLES.format(schema=schema).split(";"):
                writer.execute(statement.encode())
            entries = _stream(reader, LOG, writer, f"{schema}.entry")
            accounts = _stream(reader, BOOKS, writer, f"{schema}.book")
            compared = COMPARED.format(schema=schema, differences_max=DIFFERENCES_MAX)
            writer.execute(compared.encode())
            differences = tuple(
                f"{account} of {organization} comes to {replayed}, the books say {held}"
                for organization, account, replayed, held in writer.fetchall()
            )
    return ReplayReport(entries=entries, accounts=accounts, differences=differences)


@contextmanager
def _empty_place(into: str | None) -> Iterator["psycopg.Connection[Any]"]:
    """A connection to where the log is replayed; what it wrote is committed, or temporary."""
    if into is None:
        with transaction.atomic(using="owner", durable=True):
            connection = connections["owner"].connection
            assert connection is not None
            yield connection
            transaction.set_rollback(True, using="owner")
        return
    with psycopg.connect(into) as connection:
        connection.execute(f"CREATE SCHEMA {SCHEMA}".encode())
        yield connection


def _stream(reader: Any, query: str, writer: "psycopg.Cursor[Any]", table: str) -> int:
    """Copy a query's rows from one server to another, some kilobytes at once; how many."""
    with (
        reader.copy(f"COPY ({query}) TO STDOUT") as rows,
        writer.copy(f"COPY {table} FROM STDIN".encode()) as copied,
    ):
        for data in rows:
            copied.write(data)
    return writer.rowcount
