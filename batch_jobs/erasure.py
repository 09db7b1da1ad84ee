"""Forgetting an organization's bulk work, with the documents, answers and files in it.

Called through the facade when an organization is erased. Its keys are dead by then, so that nothing
is leased any more; what a pump still holds finds its item gone.
"""

from uuid import UUID

from django.db import connections

from batch_jobs.files.sweeping import forget_files

HOUSEKEEPER_ALIAS = "housekeeper"
ITEMS_PAGE = 10_000

_FORGET_ITEMS = """
    WITH page AS (
        SELECT id FROM bulk_item WHERE organization_id = %(organization)s AND job_id = %(job)s
         ORDER BY id LIMIT %(items_max)s
    ), attempts AS (
        DELETE FROM bulk_attempt a USING page WHERE a.item_id = page.id
    )
    DELETE FROM bulk_item i USING page WHERE i.id = page.id"""
_TABLES = ("bulk_attempt", "bulk_progress", "bulk_summary_plan", "bulk_job")
"""In an order in which nothing is taken from under what names it."""


def forget_jobs(organization_id: UUID) -> None:
    """Deletes all of the organization's files, jobs and items; idempotent.

    Items go by the page, for there may be millions; who is interrupted begins again. Files go last:
    who tends a job writes none any more once it is gone.
    """
    with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        cursor.execute("SELECT id FROM bulk_job WHERE organization_id = %s", [organization_id])
        for (job_id,) in cursor.fetchall():
            asked = {"organization": organization_id, "job": job_id, "items_max": ITEMS_PAGE}
            cursor.execute(_FORGET_ITEMS, asked)
            while cursor.rowcount == ITEMS_PAGE:
                cursor.execute(_FORGET_ITEMS, asked)
        for table in _TABLES:
            cursor.execute(
                f"DELETE FROM {table} WHERE organization_id = %s",  # noqa: S608 - our own names
                [organization_id],
            )
    forget_files(organization_id)
