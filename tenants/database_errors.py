"""Which rule of the database a write broke. Used inside `tenants` only."""

import psycopg
from django.db import IntegrityError


def broken_constraint(error: IntegrityError) -> str | None:
    """The constraint's name, where the database told it."""
    cause = error.__cause__
    return cause.diag.constraint_name if isinstance(cause, psycopg.Error) else None
