"""Forgetting an organization's bulk work, with the documents and summaries in it.

Called through the facade when an organization is erased. Its keys are dead by then, so that nothing
is leased any more; what a pump still holds finds its item gone.
"""

from uuid import UUID

from django.db import connections, transaction

HOUSEKEEPER_ALIAS = "housekeeper"


def forget_jobs(organization_id: UUID) -> None:
    """Deletes all of the organization's jobs and items; idempotent."""
    with (
        transaction.atomic(using=HOUSEKEEPER_ALIAS),
        connections[HOUSEKEEPER_ALIAS].cursor() as cursor,
    ):
        for table in ("summary_item", "summary_job"):
            cursor.execute(
                f"DELETE FROM {table} WHERE organization_id = %s",  # noqa: S608 - our own names
                [organization_id],
            )
