"""The last of each report: a worker keeps it, the operator's pages read it.

Kept as the housekeeper; read as role `app`, by a function that asks whether who asks is of the
staff. Called by the reports beside it and by pages.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db import connections

from headrace.operator_console.models import ReportRow

APP_ALIAS = "default"
HOUSEKEEPER_ALIAS = "housekeeper"


class ReportName(StrEnum):
    """Which report."""

    HOUSE = "house"
    BOOKS = "books"
    ENGINE_TIME = "engine_time"


@dataclass(frozen=True, slots=True)
class Report:
    """A report, and of when it is."""

    made_at: datetime
    content: Mapping[str, Any]


def keep(name: ReportName, content: Mapping[str, Any]) -> None:
    """In place of the one before."""
    ReportRow.objects.using(HOUSEKEEPER_ALIAS).update_or_create(
        name=name.value, defaults={"made_at": datetime.now(UTC), "content": dict(content)}
    )


def last(operator_id: UUID, name: ReportName) -> Report | None:
    """None before the first. Raises ProgrammingError for somebody who is no operator."""
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute("SELECT * FROM operator_report_named(%s, %s)", [operator_id, name.value])
        row = cursor.fetchone()
    if row is None:
        return None
    made_at, content = row
    return Report(made_at, json.loads(content) if isinstance(content, str) else content)
