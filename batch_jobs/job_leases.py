"""Who tends which job: one process at a time, under a lease and a fencing number.

A lease never proves that its holder lives: each claim raises `tend_token`, and whatever a holder
writes goes through `locked`, which refuses one that was superseded. Leases go by the database's
clock alone, so workers' clocks may differ. Runs as housekeeper; called by tending, and by all that
it calls.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import OperationalError, connections, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from batch_jobs.contracts import Owner
from batch_jobs.models import BulkJob
from batch_jobs.stopping import is_stopping

HOUSEKEEPER_ALIAS = "housekeeper"

_DUE = """(state IN ('validating', 'cancelling', 'finalizing')
           OR (state IN ('ready', 'in_progress', 'paused') AND expires_at <= %(now)s))
          AND (tended_until IS NULL OR tended_until <= now())"""
# Of each tenant the job that waited longest; a job that takes many turns goes to the back after
# each. random(): where there are more tenants than tenders, none is always the last.
_LEASE = f"""
    WITH due AS (
        SELECT DISTINCT ON (organization_id) id FROM bulk_job WHERE {_DUE}
         ORDER BY organization_id, tended_until NULLS FIRST, id
    )
    UPDATE bulk_job SET tend_token = tend_token + 1,
           tended_until = now() + make_interval(secs => %(lease_s)s)
     WHERE id = (
        SELECT id FROM bulk_job WHERE id IN (SELECT id FROM due) AND {_DUE}
         ORDER BY random() LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING id, organization_id, project_id, key_id, kind, state, tend_token,
              coalesce(expires_at <= %(now)s
                       AND state IN ('validating', 'ready', 'in_progress', 'paused'), false)
"""  # noqa: S608 - our own text


class LeaseLost(Exception):
    """Another process tends the job by now, or it went on to another state meanwhile."""


class StepStopped(Exception):
    """This process is told to end: the step was left at a page, for the next tender."""


@dataclass(frozen=True, slots=True)
class LeasedJob:
    """A job under lease, in the state it was found in."""

    job_id: UUID
    organization_id: UUID
    project_id: UUID
    key_id: UUID
    kind: str
    state: str
    tend_token: int
    expired: bool
    """Its time is over, and it has not ended by itself."""

    @property
    def owner(self) -> Owner:
        """On whose behalf its files are written."""
        return Owner(self.organization_id, self.project_id, self.key_id)


def lease_job(now: datetime, lease_s: int) -> LeasedJob | None:
    """The job that has waited longest to be looked after; None when there is none.

    `now` tells which jobs' time is over.
    """
    with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        cursor.execute(_LEASE, {"now": now, "lease_s": lease_s})
        row = cursor.fetchone()
    return None if row is None else LeasedJob(*row)


def job_row(job: LeasedJob) -> BulkJob:
    """The job as it is now, unlocked; raises LeaseLost."""
    found = _held(job).first()
    if found is None:
        raise LeaseLost
    return found


@contextmanager
def locked(job: LeasedJob, *states: str) -> Iterator[BulkJob]:
    """A transaction that holds the job's row, for what must not happen twice.

    Raises LeaseLost when the lease was taken over, or the job is in none of `states` any more
    (without any, in the state it was found in).
    """
    with transaction.atomic(using=HOUSEKEEPER_ALIAS):
        row = (
            _held(job)
            .filter(state__in=states or (job.state,))
            .select_for_update(no_key=True, of=("self",))
            .first()
        )
        if row is None:
            raise LeaseLost
        yield row


def renew(job: LeasedJob, lease_s: int) -> None:
    """Lets the lease run for `lease_s` more seconds; raises LeaseLost."""
    if not _held(job).update(tended_until=Now() + timedelta(seconds=lease_s)):
        raise LeaseLost


@contextmanager
def renewed(job: LeasedJob) -> Iterator[None]:
    """Keeps the lease from running out while the block runs, whatever that waits for.

    Not for ever: who is stuck loses the job to another in the end.
    """
    done = threading.Event()
    thread = threading.Thread(target=_renew_until, args=(job, done), name="tending lease")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _renew_until(job: LeasedJob, done: threading.Event) -> None:
    try:
        for _ in range(settings.BATCH_TEND_RENEWALS_MAX):
            if done.wait(settings.BATCH_TEND_LEASE_S / 3):
                return
            with suppress(OperationalError):  # the next one may come in time
                renew(job, settings.BATCH_TEND_LEASE_S)
    except LeaseLost:
        return
    finally:
        connections[HOUSEKEEPER_ALIAS].close()


class LeaseKeeper:
    """Renews a lease every so often while a step goes from page to page, and so finds out in the
    midst of it that the step is superseded, or that this process ends: call it at each page."""

    def __init__(self, job: LeasedJob) -> None:
        self._job = job
        self._renewed_at = time.monotonic()

    def __call__(self) -> None:
        """Raises LeaseLost, StepStopped."""
        if is_stopping():
            raise StepStopped
        if time.monotonic() - self._renewed_at > settings.BATCH_TEND_LEASE_S / 3:
            renew(self._job, settings.BATCH_TEND_LEASE_S)
            self._renewed_at = time.monotonic()


def release(job: LeasedJob, wait_s: int) -> None:
    """Gives the job back, to be looked at again after `wait_s`."""
    _held(job).update(tended_until=Now() + timedelta(seconds=wait_s))


def _held(job: LeasedJob) -> QuerySet[BulkJob]:
    return BulkJob.objects.using(HOUSEKEEPER_ALIAS).filter(
        id=job.job_id, organization_id=job.organization_id, tend_token=job.tend_token
    )
