"""The claim of items out of a million: what it takes at the start, in the middle and at the end.

`python -m benchmarks.bulk_claim [--items N]`: one job of a million items loaded by COPY, beside
small jobs of other tenants, claimed by one client as a pump claims, and worked off in between.
Claims are committed durably; what works off is not. Wall time, client included.
"""

import argparse
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import psutil
from uuid_utils.compat import uuid7

from benchmarks.report import Row, percentile, print_report
from benchmarks.usage import fresh_database

ITEMS = 1_000_000
OTHER_TENANTS = 4
ITEMS_OF_OTHERS = 1_000
CLAIMS = 300
"""Timed at each stage."""
CLAIM_MS_MAX = 5.0
SEATS = 16
JOBS_MAX = 64
LEASE_S = 10
"""Short, so that the index of leases has dead entries in the past as it has in a house."""
WORKED_OFF_AT_ONCE = 5_000
MEMORY_RATIO_MAX = 1.05
PLANNED_AFTER = 10
"""Claims of nothing, as an idle worker makes: what they were planned as stays with its session."""
STAGES = ("the start", "the middle", "the end")
CLAIM = "SELECT item_id FROM batch_jobs_claim_items(%s, %s, %s)"
END = """
    UPDATE bulk_item SET state = 'done', lease_expires_at = NULL, ended_at = now(),
           status_code = 200, answer = ' mill'
     WHERE id = ANY (%s)"""
DEFAULTS = {
    "retry_at": datetime(2000, 1, 1, tzinfo=UTC),
    "state": "queued",
    **dict.fromkeys(
        (
            *("part", "parts_left", "copies", "bound_pico", "lease_token", "attempts"),
            *("prompt_tokens", "cached_tokens", "completion_tokens", "charge_pico"),
        ),
        0,
    ),
}


def new_job(name: str, items: int) -> None:
    """A tenant's running job with so many items, loaded by COPY."""
    from django.db import connections

    from batch_jobs.models import BulkJob
    from tenants.facade import create_organization, create_project, issue_key

    organization_id = create_organization(name, name).organization_id
    project_id = create_project(organization_id, "bulk")
    job = BulkJob.objects.using("housekeeper").create(
        organization_id=organization_id,
        project_id=project_id,
        key_id=issue_key(organization_id, project_id, "bulk").key_id,
        kind="batch",
        state="in_progress",
        endpoint="/v1/chat/completions",
        items_total=items,
    )
    columns = ("organization_id", "job_id", "line", "custom_id", "place", "source_offset")
    names = ", ".join((*columns, "source_bytes", *DEFAULTS))
    with (
        connections["housekeeper"].cursor() as cursor,
        cursor.copy(f"COPY bulk_item ({names}) FROM STDIN") as copy,
    ):
        for line in range(1, items + 1):
            own = (organization_id, job.id, line, f"line-{line}", line, line * 200, 200)
            copy.write_row((*own, *DEFAULTS.values()))


def claim(seats: int) -> list[int]:
    """As a pump does, as role `app`."""
    from django.db import connection

    ids: list[UUID] = [uuid7() for _ in range(seats)]
    with connection.cursor() as cursor:
        cursor.execute(CLAIM, [ids, LEASE_S, JOBS_MAX])
        return [item_id for (item_id,) in cursor.fetchall()]


def end(item_ids: Sequence[int]) -> None:
    """As done."""
    from django.db import connections

    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(END, [list(item_ids)])


def timed_claims_ms() -> list[float]:
    """Milliseconds of CLAIMS claims; what they took is worked off."""
    times: list[float] = []
    for _ in range(CLAIMS):
        began_s = time.perf_counter()
        taken = claim(SEATS)
        times.append((time.perf_counter() - began_s) * 1e3)
        assert len(taken) == SEATS, len(taken)
        end(taken)
    return times


def work_off(items: int) -> None:
    """So many items, in large pieces, without waiting for the disk."""
    from django.db import connection, connections

    for alias in (connection.alias, "housekeeper"):
        with connections[alias].cursor() as cursor:
            cursor.execute("SET synchronous_commit = off")
    while items > 0:
        taken = claim(min(items, WORKED_OFF_AT_ONCE))
        assert taken
        end(taken)
        items -= len(taken)
    for alias in (connection.alias, "housekeeper"):
        with connections[alias].cursor() as cursor:
            cursor.execute("SET synchronous_commit = on")


def vacuum() -> float:
    """Seconds of what autovacuum does once a minute: so much is worked off in a house in many."""
    from django.db import connections

    began_s = time.perf_counter()
    with connections["owner"].cursor() as cursor:
        cursor.execute("VACUUM ANALYZE bulk_item, bulk_attempt, bulk_job")
    return time.perf_counter() - began_s


def megabytes() -> float:
    """Resident memory of this process, which claims as a worker does."""
    return float(psutil.Process().memory_info().rss) / 2**20


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bulk_claim")
    parser.add_argument("--items", type=int, default=ITEMS)
    options = parser.parse_args()
    rows: list[Row] = []
    with fresh_database(durable=True):
        for _ in range(PLANNED_AFTER):
            assert not claim(SEATS)
        for number in range(OTHER_TENANTS):
            new_job(f"other-{number}", ITEMS_OF_OTHERS)
        loading_s = time.perf_counter()
        new_job("large", options.items)
        loaded_s = time.perf_counter() - loading_s
        timed = SEATS * CLAIMS
        between = (options.items - (1 + len(STAGES)) * timed) // (len(STAGES) - 1)
        assert between > 0, "too few items to time claims of"
        work_off(timed)
        memory, vacuumed_s = [megabytes()], [0.0]
        for number, stage in enumerate(STAGES):
            times = timed_claims_ms()
            for percent in (50, 99):
                name = f"claim of {SEATS} at {stage}, p{percent}"
                of_them = percentile(times, percent)
                rows.append(Row(name, of_them, "limit", CLAIM_MS_MAX, "ms", "<= 1"))
            if number + 1 < len(STAGES):
                work_off(between)
                vacuumed_s.append(vacuum())
        memory.append(megabytes())
    rows.append(
        Row(
            "worker's memory at the end",
            memory[1],
            "at the start",
            memory[0],
            "MB",
            f"<= {MEMORY_RATIO_MAX}",
        )
    )
    print_report(f"Claims out of {options.items:,} items", rows, threads=0)
    print(f"loaded by COPY at {options.items / loaded_s:,.0f} items/s; ", end="")
    print("vacuumed in " + ", ".join(f"{seconds:.1f}" for seconds in vacuumed_s) + " s")


if __name__ == "__main__":
    main()
