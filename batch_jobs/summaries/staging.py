"""Where ingestion puts what it reads, texts into shards and items into their table, in bulk; and
how shards go that no item needs any more.

Runs as housekeeper, inside the page's transaction but for the shard, which is written before it
and is the job's only once that commits: until then it expires by itself.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connections

from batch_jobs.contracts import FileMissing
from batch_jobs.events import public_id
from batch_jobs.files import room
from batch_jobs.job_files import STAGED, stage_file
from batch_jobs.job_leases import HOUSEKEEPER_ALIAS, LeasedJob, LeaseKeeper
from batch_jobs.models import ItemState, JobKind, StoredFile
from batch_jobs.models.items import FRESH_AT
from batch_jobs.pages import by_index
from batch_jobs.summaries.drafting import Row, Twin

_COPY = """
    COPY bulk_item (
        id, organization_id, job_id, line, input_number, custom_id, source_id, source_offset,
        source_bytes, digest, parent_id, part, parts_left, same_as_id, copies, bound_pico, state,
        answer, error_code, error_message, ended_at, retry_at, place, lease_token, attempts,
        prompt_tokens, cached_tokens, completion_tokens, charge_pico
    ) FROM STDIN"""
_UNTOUCHED = (FRESH_AT, 0, 0, 0, 0, 0, 0, 0)
# By LATERAL, so that each is looked up: without statistics of a job that is being read, a plain
# ANY is answered by going through all of its items.
_TAKEN = """
    SELECT wanted.custom_id FROM unnest(%s::text[]) AS wanted (custom_id)
     CROSS JOIN LATERAL (
        SELECT FROM bulk_item i WHERE i.job_id = %s AND i.custom_id = wanted.custom_id LIMIT 1
     ) AS taken"""
_TWINS = """
    SELECT wanted.digest, twin.* FROM unnest(%(digests)s::bytea[]) AS wanted (digest)
     CROSS JOIN LATERAL (
        SELECT i.id, i.job_id = %(job)s AS is_of_this_job, i.state = 'done' AS is_done, i.answer
          FROM bulk_item i JOIN bulk_job j ON j.id = i.job_id
         WHERE i.organization_id = %(organization)s AND i.digest = wanted.digest
           AND (i.job_id = %(job)s
                OR i.state = 'done' AND i.answer IS NOT NULL
                   AND j.project_id = %(project)s AND j.results_deleted_at IS NULL)
         ORDER BY i.job_id = %(job)s DESC, i.id DESC LIMIT 1
     ) AS twin"""
_IDS = "SELECT nextval('bulk_item_id_seq') FROM generate_series(1, %s)"
_COUNT_COPIES = """
    UPDATE bulk_item i SET copies = copies + more.number
      FROM unnest(%s::bigint[], %s::int[]) AS more (id, number)
     WHERE i.id = more.id AND i.organization_id = %s"""
_DELETE = """
    DELETE FROM bulk_item WHERE id IN (
        SELECT id FROM bulk_item
         WHERE (job_id, id) > (%(job)s, 0) AND (job_id, id) <= (%(job)s, %(end)s)
           AND organization_id = %(organization)s
         ORDER BY job_id, id LIMIT %(items_max)s)"""
_NEEDED = """
    WITH page AS (
        SELECT id, state, source_id FROM bulk_item
         WHERE (job_id, id) > (%(job)s, %(after)s) AND (job_id, id) <= (%(job)s, %(end)s)
           AND organization_id = %(organization)s
         ORDER BY job_id, id LIMIT %(items_max)s)
    SELECT max(id), coalesce(array_agg(DISTINCT source_id)
                             FILTER (WHERE source_id IS NOT NULL AND state <> 'done'), '{}')
      FROM page"""
_DISCARD = """
    UPDATE bulk_file SET deleted_at = now()
     WHERE id IN (
        SELECT id FROM bulk_file
         WHERE organization_id = %s AND purpose = %s AND filename = %s AND deleted_at IS NULL
           AND id <> ALL (%s)
         LIMIT %s)"""
NEEDED_ITEMS_PAGE = 5000
DISCARDED_SHARDS_PAGE = 10_000
_IDS_END = 2**63 - 1


def taken_ids(job: LeasedJob, custom_ids: Sequence[str]) -> set[str]:
    """Those of `custom_ids` that documents of the job have already."""
    with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        cursor.execute(_TAKEN, [list(custom_ids), job.job_id])
        return {custom_id for (custom_id,) in cursor.fetchall()}


def find_twins(job: LeasedJob, digests: Sequence[bytes]) -> dict[bytes, Twin]:
    """An item for each digest that has one in this job, or was done in this project before."""
    with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        cursor.execute(
            _TWINS,
            {
                "digests": list(digests),
                "organization": job.organization_id,
                "project": job.project_id,
                "job": job.job_id,
            },
        )
        return {bytes(digest): Twin(*twin) for digest, *twin in cursor.fetchall()}


def stage_texts(job: LeasedJob, texts: Sequence[str], now: datetime) -> UUID | None:
    """A shard of the texts, one after the other; None where there are none."""
    if not texts:
        return None
    return stage_file(job, _shard_name(job.job_id), (text.encode() for text in texts), now)


def keep_shard(job: LeasedJob, shard_id: UUID) -> None:
    """Makes a shard the job's for good, in the transaction that inserts its items.

    Raises FileMissing when it took so long that the shard has expired.
    """
    kept = (
        StoredFile.objects.using(HOUSEKEEPER_ALIAS)
        .filter(organization_id=job.organization_id, id=shard_id, purpose=STAGED, deleted_at=None)
        .update(expires_at=None)
    )
    if not kept:
        raise FileMissing(f"staged file {shard_id} is gone")


def check_room(job: LeasedJob) -> None:
    """That the organization may store the shards that its jobs keep; raises StorageFull.

    Until the transaction ends it is this one's turn: call it last.
    """
    room.take_turn(job.organization_id, HOUSEKEEPER_ALIAS)
    room.check_bytes(job.organization_id, HOUSEKEEPER_ALIAS)


def insert_rows(
    job: LeasedJob, rows: Sequence[Row], input_number: int, shard_id: UUID | None, now: datetime
) -> None:
    """Inserts a page's items, with one COPY."""
    owner = (job.organization_id, job.job_id)
    with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        cursor.execute(_IDS, [len(rows)])
        ids = [item_id for (item_id,) in cursor.fetchall()]
        with cursor.cursor.copy(_COPY) as copy:
            for item_id, row in zip(ids, rows, strict=True):
                has_ended = row.state in (ItemState.DONE, ItemState.FAILED)
                copy.write_row(
                    (
                        item_id,
                        *owner,
                        row.line,
                        input_number,
                        row.custom_id,
                        None if row.offset is None else shard_id,
                        row.offset or 0,
                        row.size_bytes,
                        row.digest,
                        None if row.parent is None else ids[row.parent],
                        row.part,
                        row.parts_left,
                        row.same_id if row.same_row is None else ids[row.same_row],
                        row.copies,
                        row.bound_pico,
                        row.state.value,
                        row.answer,
                        row.error_code,
                        row.error_message,
                        now if has_ended else None,
                        *_UNTOUCHED,
                    )
                )


def count_copies(job: LeasedJob, copies: Mapping[int, int]) -> None:
    """Adds to how many documents share each of these items."""
    if copies:
        with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
            cursor.execute(
                _COUNT_COPIES, [list(copies), list(copies.values()), job.organization_id]
            )


def delete_items(job: LeasedJob, items_max: int) -> int:
    """Deletes a page of the items of a job that will not run; how many."""
    asked: dict[str, Any] = {
        "organization": job.organization_id,
        "job": job.job_id,
        "end": _IDS_END,
        "items_max": items_max,
    }
    with by_index(), connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        cursor.execute(_DELETE, asked)
        deleted: int = cursor.rowcount
    return deleted


def needed_shards(job: LeasedJob) -> set[UUID]:
    """Those that hold a text of an item that has no summary, for when the job is retried.

    Goes through all items of a job that has ended; raises LeaseLost.
    """
    keep_lease, needed, after = LeaseKeeper(job), set[UUID](), 0
    asked: dict[str, Any] = {
        "organization": job.organization_id,
        "job": job.job_id,
        "end": _IDS_END,
        "items_max": NEEDED_ITEMS_PAGE,
    }
    while after is not None:
        keep_lease()
        with by_index(), connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
            cursor.execute(_NEEDED, asked | {"after": after})
            after, shard_ids = cursor.fetchone()
        needed.update(shard_ids)
    return needed


def discard_shards(organization_id: UUID, job_id: UUID, needed: Collection[UUID] = ()) -> None:
    """Gives up a job's shards but for those that are still `needed`. Idempotent."""
    page = DISCARDED_SHARDS_PAGE
    asked = (organization_id, STAGED, _shard_name(job_id), list(needed), page)
    with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        cursor.execute(_DISCARD, asked)
        while cursor.rowcount == page:
            cursor.execute(_DISCARD, asked)


def _shard_name(job_id: UUID) -> str:
    """A shard's file name, by which its job's are found."""
    return public_id(JobKind.SUMMARY, job_id)
