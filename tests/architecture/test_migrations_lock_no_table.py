"""A migration of a house with millions of rows lets requests pass while it builds an index."""

import re

import pytest
from django.db import connections
from django.db.migrations.loader import MigrationLoader

BEFORE_ANY_HOUSE = {"tenants": 12, "billing": 19, "batch_jobs": 11, "operator_console": 1}
"""Numbers of the migrations that only ever run on empty tables."""
CREATED = re.compile(r'CREATE (?:UNLOGGED )?TABLE (?:IF NOT EXISTS )?"?(\w+)', re.IGNORECASE)
INDEXED = re.compile(
    r'CREATE (?:UNIQUE )?INDEX (CONCURRENTLY )?(?:IF NOT EXISTS )?"?\w*"?\s*ON (ONLY )?"?(\w+)',
    re.IGNORECASE,
)


def locked_by(sql: str) -> set[str]:
    """Tables from before these statements that take no writes while an index of theirs is built."""
    built = ((table, beside or only) for beside, only, table in INDEXED.findall(sql))
    indexed = {table for table, at_leisure in built if not at_leisure}
    return indexed - set(CREATED.findall(sql))


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("CREATE INDEX a ON billing_hold (id);", {"billing_hold"}),
        ('CREATE UNIQUE INDEX "a" ON "billing_hold" ("id")', {"billing_hold"}),
        ("CREATE INDEX\n", set()),
        ("CREATE INDEX CONCURRENTLY a ON billing_hold (id)", set()),
        ("CREATE TABLE fresh (id int); CREATE INDEX a ON fresh (id)", set()),
        ("CREATE INDEX a\n    ON billing_usage_event (id)", {"billing_usage_event"}),
        # Of a table in partitions: nothing is built, each partition's is attached to it later.
        ("CREATE INDEX a ON ONLY billing_usage_event (id)", set()),
    ],
)
def test_an_index_that_locks_a_table_is_seen(sql: str, tables: set[str]) -> None:
    assert locked_by(sql) == tables


@pytest.mark.usefixtures("django_database")
def test_later_migrations_build_indexes_beside_running_requests() -> None:
    connection = connections["owner"]
    loader = MigrationLoader(connection)
    ours = [key for key in loader.disk_migrations if key[0] in BEFORE_ANY_HOUSE]
    assert {app for app, _ in ours} == set(BEFORE_ANY_HOUSE)

    for app, name in ours:
        if int(name[:4]) > BEFORE_ANY_HOUSE[app]:
            migration = loader.get_migration(app, name)
            sql = "\n".join(loader.collect_sql([(migration, False)]))
            assert not locked_by(sql), f"{app} {name}: CREATE INDEX CONCURRENTLY, atomic = False"
