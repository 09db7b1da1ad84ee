"""The results of a summarisation job, read from its rows a page at a time, also while it runs.

Never holds more than a page, and no transaction is open between two. How they are written (JSONL,
CSV, Parquet) is the door's.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connections

from batch_jobs.contracts import InputInvalid, JobNotFound, Owner, SummaryResult
from batch_jobs.models import BulkItem, BulkJob, StoredFile, SummaryPlan
from batch_jobs.summaries.jobs import APP_ALIAS, found, of_project
from tenants.facade import tenant_scope

_BY_INDEX = "SET LOCAL enable_sort = off; SET LOCAL enable_incremental_sort = off"
# Of a document in parts, tokens and charge are those of the whole tree. Only an index that begins
# with the job answers a comparison of rows: the planner must not walk all ids of all jobs instead,
# nor, before the table has statistics, sort all of the job or read all items for the parts (hence
# the fence).
_PAGE = """
    WITH RECURSIVE page AS (
        SELECT * FROM bulk_item
         WHERE (job_id, id) > (%(job)s, %(after)s) AND (job_id, id) <= (%(job)s, %(until)s)
           AND organization_id = %(organization)s AND custom_id IS NOT NULL
           AND state = ANY (%(states)s)
         ORDER BY job_id, id LIMIT %(rows_max)s
    ), tree AS (
        SELECT id AS root, id, prompt_tokens, cached_tokens, completion_tokens, charge_pico
          FROM page
        UNION ALL
        SELECT t.root, c.id, c.prompt_tokens, c.cached_tokens, c.completion_tokens, c.charge_pico
          FROM tree t
         CROSS JOIN LATERAL (
            SELECT id, prompt_tokens, cached_tokens, completion_tokens, charge_pico
              FROM bulk_item WHERE parent_id = t.id OFFSET 0) AS c
    ), sums AS (
        SELECT root, sum(prompt_tokens)::bigint AS prompt, sum(cached_tokens)::bigint AS cached,
               sum(completion_tokens)::bigint AS completion, sum(charge_pico)::bigint AS charge
          FROM tree GROUP BY root
    )
    SELECT p.id, p.custom_id, p.state, coalesce(p.answer, o.answer), p.error_code,
           p.error_message, p.input_number, p.line, o.custom_id, p.request_id,
           s.prompt, s.cached, s.completion, s.charge
      FROM page p JOIN sums s ON s.root = p.id
      LEFT JOIN bulk_item o ON o.id = p.same_as_id
     ORDER BY p.id"""
_FIRST_OF_SHARD = """
    SELECT id FROM bulk_item
     WHERE (job_id, id) > (%(job)s, 0) AND (job_id, id) <= (%(job)s, %(until)s)
       AND organization_id = %(organization)s AND custom_id IS NOT NULL
     ORDER BY job_id, id OFFSET %(rows)s LIMIT 1"""
ROWS_END = 2**63 - 1
"""Behind all rows."""
DONE = ["done"]
NOT_DONE = ["failed", "cancelled", "expired"]


def read_results(
    owner: Owner,
    job_id: UUID,
    *,
    after_row: int = 0,
    until_row: int | None = None,
    failures: bool = False,
) -> Sequence[SummaryResult]:
    """The next page of documents that have ended, behind `after_row`; empty when there are none.

    With `failures` only those that have no summary. Raises JobNotFound, also when the results were
    deleted.
    """
    with tenant_scope(owner.organization_id):
        row = _readable(owner, job_id)
        names = _input_names(row)
        with connections[APP_ALIAS].cursor() as cursor:
            cursor.execute(_BY_INDEX)
            cursor.execute(
                _PAGE,
                {
                    "organization": owner.organization_id,
                    "job": job_id,
                    "after": after_row,
                    "until": ROWS_END if until_row is None else until_row,
                    "states": NOT_DONE if failures else [*DONE, *NOT_DONE],
                    "rows_max": settings.RESULTS_PAGE_ROWS,
                },
            )
            return [_result(values, names) for values in cursor.fetchall()]


def row_of(owner: Owner, job_id: UUID, custom_id: str) -> int:
    """Where the document of this id is among the rows; raises InputInvalid, JobNotFound."""
    with tenant_scope(owner.organization_id):
        _readable(owner, job_id)
        items = BulkItem.objects.filter(job_id=job_id, custom_id=custom_id)
        row: int | None = items.values_list("id", flat=True).first()
    if row is None:
        raise InputInvalid("after: is the id of no document of this job")
    return row


def shard_rows(owner: Owner, job_id: UUID, shard: int) -> tuple[int, int]:
    """Behind which row a shard begins, and with which it ends.

    Raises JobNotFound, also where there is no such shard.
    """
    rows_max = settings.RESULTS_SHARD_ROWS
    with tenant_scope(owner.organization_id), connections[APP_ALIAS].cursor() as cursor:
        row = _readable(owner, job_id)
        if not 0 <= shard * rows_max < max(row.items_total, 1):
            raise JobNotFound(f"{job_id} has no shard {shard}")
        cursor.execute(_BY_INDEX)
        bounds: list[int] = []
        for number in (shard, shard + 1):
            cursor.execute(
                _FIRST_OF_SHARD,
                {
                    "organization": owner.organization_id,
                    "job": job_id,
                    "until": ROWS_END,
                    "rows": number * rows_max,
                },
            )
            first = cursor.fetchone()
            bounds.append(ROWS_END if first is None else first[0] - 1)
    if bounds[0] == ROWS_END and shard > 0:
        raise JobNotFound(f"{job_id} has no shard {shard}")
    return bounds[0], bounds[1]


def _readable(owner: Owner, job_id: UUID) -> BulkJob:
    row = found(of_project(owner), job_id)
    if row.results_deleted_at is not None:
        raise JobNotFound(f"the results of {job_id} are deleted")
    return row


def _input_names(row: BulkJob) -> list[str]:
    """The names of the input files, in their order; also of those that were deleted since."""
    plan = SummaryPlan.objects.get(job_id=row.id)
    files = StoredFile.objects.filter(id__in=plan.input_file_ids)
    names = dict(files.values_list("id", "filename"))
    return [names.get(file_id, f"file-{file_id.hex}") for file_id in plan.input_file_ids]


def _result(values: tuple[Any, ...], names: Sequence[str]) -> SummaryResult:
    row, custom_id, state, answer, code, message, number, line, same_as, request, *sums = values
    return SummaryResult(
        row=row,
        custom_id=custom_id,
        state=state,
        summary=answer if state == "done" else None,
        error_code=code,
        error_message=message,
        source=names[number] if number < len(names) else None,
        line=line,
        same_as=same_as,
        request_id=request,
        prompt_tokens=sums[0],
        cached_tokens=sums[1],
        completion_tokens=sums[2],
        charge_pico=sums[3],
    )
