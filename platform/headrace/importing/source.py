"""Reading a LiteLLM database, or a folder of its tables, without changing anything there.

Numbers stay decimals: a budget never becomes a float. Passwords and providers' credentials are
not read at all. Called by the import command.
"""

import csv
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

ROWS_MAX = 1_000_000
"""Of one table; more is another tool's work."""
FIELD_BYTES_MAX = 16 * 1024 * 1024
TABLES = (
    "LiteLLM_OrganizationTable",
    "LiteLLM_OrganizationMembership",
    "LiteLLM_TeamTable",
    "LiteLLM_ModelTable",
    "LiteLLM_UserTable",
    "LiteLLM_VerificationToken",
    "LiteLLM_BudgetTable",
    "LiteLLM_ProxyModelTable",
    "LiteLLM_EndUserTable",
)
NOT_READ = ("password", "litellm_params", "credentials")

Row = Mapping[str, Any]  # a row of theirs, as JSON or text: `records` makes sense of it
Tables = Mapping[str, Sequence[Row]]


class SourceUnreadable(Exception):
    """The database or folder is not what was promised; the text says why."""


def read_database(dsn: str) -> Tables:
    """The tables that are there, in one moment; raises SourceUnreadable."""
    try:
        with psycopg.connect(dsn, connect_timeout=10) as connection:
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            found = {
                str(name)
                for (name,) in connection.execute(
                    "SELECT table_name FROM information_schema.tables WHERE table_name = ANY(%s)",
                    [list(TABLES)],
                )
            }
            tables = {name: _rows(connection, name) for name in TABLES if name in found}
    except psycopg.Error as error:
        # The message of a failed connection may hold the DSN's password.
        raise SourceUnreadable(f"the database cannot be read: {type(error).__name__}") from None
    return _checked(tables)


def read_folder(folder: Path) -> Tables:
    """`<Table>.json`, `.jsonl` or `.csv` (COPY's, with a header); raises SourceUnreadable."""
    tables: dict[str, Sequence[Row]] = {}
    for name in TABLES:
        for suffix, parse in (("json", _json), ("jsonl", _json_lines), ("csv", _csv)):
            path = folder / f"{name}.{suffix}"
            if path.is_file():
                try:
                    tables[name] = [_without_secrets(row) for row in parse(path)]
                except (ValueError, OSError, csv.Error) as error:
                    raise SourceUnreadable(f"{path.name}: {error}") from None
    return _checked(tables)


def _rows(connection: psycopg.Connection, name: str) -> Sequence[Row]:
    query = sql.SQL("SELECT (to_jsonb(t) - %s::text[])::text FROM {} t LIMIT %s").format(
        sql.Identifier(name)
    )
    cursor = connection.execute(query, [list(NOT_READ), ROWS_MAX + 1])
    return [json.loads(text, parse_float=Decimal) for (text,) in cursor]


def _json(path: Path) -> Sequence[Row]:
    rows = json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("not a list of objects")
    return rows


def _json_lines(path: Path) -> Sequence[Row]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line, parse_float=Decimal) for line in lines if line.strip()]


def _csv(path: Path) -> Sequence[Row]:
    csv.field_size_limit(FIELD_BYTES_MAX)
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {name: value if value != "" else None for name, value in row.items()}
            for row in csv.DictReader(file)
        ]


def _without_secrets(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in NOT_READ}


def _checked(tables: Mapping[str, Sequence[Row]]) -> Tables:
    if "LiteLLM_VerificationToken" not in tables:
        raise SourceUnreadable("there is no LiteLLM_VerificationToken: is this LiteLLM's?")
    for name, rows in tables.items():
        if len(rows) > ROWS_MAX:
            raise SourceUnreadable(f"{name} has more than {ROWS_MAX} rows")
    return tables
