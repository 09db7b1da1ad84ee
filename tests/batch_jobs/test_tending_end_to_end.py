"""Real workers tend one after the other: one that is told to end lets the next go on at once."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from django.db import connections

from batch_jobs.waking import wake_tending
from headrace.standalone.child_process import Child
from tests.batch_jobs.batch_cast import (
    MODEL,
    BatchTenant,
    job_of,
    make_batch_tenant,
    selling,
)
from tests.house import free_port, wait_until

pytestmark = pytest.mark.long
LINES = 300_000
"""So many take some twenty seconds to end."""
READY = "event=worker_ready"
STOP_S = 6
TEND_S = 60


@pytest.fixture
def acme(queue: None) -> Iterator[BatchTenant]:
    """Whose batch it is."""
    with selling(MODEL):
        yield make_batch_tenant("acme")


def worker(folder: Path, bundle: Path, name: str) -> Child:
    """A worker that only tends, ready."""
    child = Child(
        name,
        (
            *(sys.executable, "-m", "celery", "--quiet", "-A", "headrace.celery", "worker"),
            *("--pool", "threads", "--concurrency", "2", "-Q", "tending", "-n", f"{name}@%h"),
        ),
        environment={
            **os.environ,
            "PYTHONWARNINGS": "ignore",
            "HEADRACE_MODEL_BUNDLE": str(bundle),
            "HEADRACE_BATCH_TEND_S": str(TEND_S),
            "HEADRACE_WORKER_METRICS_PORT": str(free_port()),
        },
        log_file=folder / f"{name}.log",
    )
    wait_until(child.line_seen(READY).is_set, 60)
    return child


def cancelled(job_id: UUID) -> int:
    """So many of its lines have ended."""
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "SELECT coalesce((cursor ->> 'ended_to')::bigint, 0) FROM bulk_job WHERE id = %s",
            [job_id],
        )
        count: int = cursor.fetchone()[0]
    return count


def test_a_worker_told_to_end_in_the_midst_of_a_job_hands_it_on(
    acme: BatchTenant, bundle_folder: Path, tmp_path: Path
) -> None:
    batch_id = acme.running("a")
    job_id = job_of(batch_id).id
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO bulk_item (organization_id, job_id, line, custom_id, part, source_id,"
            " place, source_offset, source_bytes, parts_left, copies, bound_pico, state, retry_at,"
            " lease_token, attempts, prompt_tokens, cached_tokens, completion_tokens, charge_pico)"
            " SELECT organization_id, job_id, n, 'line ' || n, 0, source_id, 0, 0, 0, 0, 0, 0,"
            " state, retry_at, 0, 0, 0, 0, 0, 0 FROM bulk_item, generate_series(2, %s) AS n"
            " WHERE job_id = %s",
            [LINES, job_id],
        )
        cursor.execute("UPDATE bulk_job SET items_total = %s WHERE id = %s", [LINES, job_id])
    acme.cancel(batch_id)
    first = worker(tmp_path, bundle_folder, "first")
    try:
        wake_tending()
        wait_until(lambda: cancelled(job_id), 30)
        told_s = time.monotonic()
        first.send(signal.SIGTERM)
        assert first.wait(30), first.last_lines()
        took_s = time.monotonic() - told_s
    finally:
        first.kill()
    left = job_of(batch_id)
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute("SELECT now()")
        (now,) = cursor.fetchone()
    second = worker(tmp_path, bundle_folder, "second")
    try:
        wake_tending()
        wait_until(lambda: cancelled(job_id) > left.cursor["ended_to"], 30)
        second.send(signal.SIGTERM)
        assert second.wait(30), second.last_lines()
    finally:
        second.kill()

    assert took_s < STOP_S, "a step of a minute was left"
    assert left.state == "cancelling", "or else it was not in the midst of it"
    assert left.tended_until is not None
    assert left.tended_until <= now, "the lease was given back"
