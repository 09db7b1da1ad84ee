"""What tests leave in the database they share, taken away before it breaks the books of others.

Imports nothing that needs `django.setup()`: conftest files use it.
"""

from collections.abc import Sequence

from django.db import connections

BULK_TABLES = ("attempt", "item", "progress", "summary_plan", "job", "file")
NEWS_TABLES = ("webhook_attempt", "webhook_delivery", "mail", "outbox_event")


def forget_bulk_work(fixture_names: Sequence[str]) -> None:
    """Deletes all jobs and files after a test with these fixtures, unless a house works on them."""
    if "django_database" in fixture_names and not {"house", "own_house"} & set(fixture_names):
        with connections["housekeeper"].cursor() as cursor:
            for table in BULK_TABLES:
                cursor.execute(f"DELETE FROM bulk_{table}")


def forget_news() -> None:
    """Deletes what tells of events and waits to be sent: posting what thousands of tests left takes
    a test that wants to see its own sent three quarters of a minute."""
    with connections["housekeeper"].cursor() as cursor:
        for table in NEWS_TABLES:
            cursor.execute(f"DELETE FROM tenants_{table}")
