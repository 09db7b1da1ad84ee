"""What tests leave in the database they share, taken away before it breaks the books of others.

Imports nothing that needs `django.setup()`: conftest files use it.
"""

from collections.abc import Sequence

from django.db import connections

TABLES = ("attempt", "item", "progress", "summary_plan", "job", "file")


def forget_bulk_work(fixture_names: Sequence[str]) -> None:
    """Deletes all jobs and files after a test with these fixtures, unless a house works on them."""
    if "django_database" in fixture_names and not {"house", "own_house"} & set(fixture_names):
        with connections["housekeeper"].cursor() as cursor:
            for table in TABLES:
                cursor.execute(f"DELETE FROM bulk_{table}")
