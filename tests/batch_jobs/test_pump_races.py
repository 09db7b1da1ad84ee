"""Several workers at once, each in a thread with a connection of its own."""

import itertools
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from batch_jobs.models import BulkItem
from batch_jobs.pump.claiming import ClaimedItem
from batch_jobs.pump.transitions import Attempt, Returned, return_items
from tests.batch_jobs.cast import Tenant
from tests.batch_jobs.pump_cast import (
    answer,
    check_totals,
    fail,
    finish,
    item_rows,
    job_row,
    lapse,
    plant,
    states,
    take,
)

WORKERS = 3


def at_once(work: Callable[[int], None]) -> None:
    """`work(number)` in WORKERS threads; raises what one of them raised."""

    def run(number: int) -> None:
        try:
            work(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(run, number) for number in range(WORKERS)]:
            done.result(timeout=60)


def test_no_item_goes_to_two_workers(acme: Tenant, globex: Tenant) -> None:
    jobs = [plant(acme, *map(str, range(60))), plant(globex, *map(str, range(60)))]
    taken: list[ClaimedItem] = []

    def work(_: int) -> None:
        for _ in range(20):
            taken.extend(take(5))

    at_once(work)
    assert len({item.item_id for item in taken}) == len(taken)
    finish(*taken)
    while rest := take():
        finish(*rest)
    assert {state for job_id in jobs for state in states(job_id)} == {"done"}


def test_a_budget_holds_however_many_claim(acme: Tenant) -> None:
    job_id = plant(acme, *map(str, range(200)), budget_pico=505)
    highest: list[int] = []

    def work(number: int) -> None:
        for _ in range(25):
            items = take(4)
            highest.append(check_budget(505))
            # Each is charged 7 of the 10 that it was bound to.
            finish(*items[number % 2 :])
            return_items([Returned(item, Attempt.NOT_MADE) for item in items[: number % 2]])

    def check_budget(budget_pico: int) -> int:
        with connections["housekeeper"].cursor() as cursor:
            cursor.execute(
                "SELECT j.charge_pico + coalesce((SELECT sum(i.bound_pico) FROM bulk_item i"
                " WHERE i.job_id = j.id AND i.state IN ('leased', 'answered')), 0)"
                " FROM bulk_job j WHERE j.id = %s",
                [job_id],
            )
            bound: int = cursor.fetchone()[0]
        assert bound <= budget_pico
        return bound

    at_once(work)
    assert max(highest) > 400
    while rest := take():
        finish(*rest)
    job = check_totals(job_id)
    assert (job.state, job.pause_reason) == ("paused", "budget")
    assert 495 < job.charge_pico <= 505


def test_a_budget_with_room_never_pauses_its_job(acme: Tenant) -> None:
    job_id = plant(acme, "a", budget_pico=1000)
    item = BulkItem.objects.using("housekeeper").filter(job_id=job_id, state="queued")

    def work(number: int) -> None:
        for turn in range(300):
            if number == 0:
                item.update(retry_at=f"20{20 if turn % 2 else 90}-01-01T00:00:00Z")
            else:
                return_items([Returned(one, Attempt.NOT_MADE) for one in take()])

    at_once(work)
    assert job_row(job_id).state == "in_progress"


@pytest.mark.parametrize("seed", range(3))
def test_totals_are_those_of_the_items_whatever_happens_meanwhile(
    acme: Tenant, globex: Tenant, seed: int
) -> None:
    jobs = [plant(tenant, *map(str, range(30))) for tenant in (acme, globex, acme)]

    def work(number: int) -> None:
        luck = random.Random(seed * 10 + number)
        held: list[ClaimedItem] = []
        for _ in range(60):
            match luck.choice(["claim", "finish", "fail", "return", "lapse", "answer"]):
                case "claim":
                    held.extend(take(luck.randint(1, 6)))
                case "finish":
                    finish(*luck.sample(held, len(held) // 2))
                case "fail":
                    fail(*luck.sample(held, min(1, len(held))))
                case "return":
                    some = luck.sample(held, len(held) // 3)
                    return_items([Returned(item, luck.choice(list(Attempt))) for item in some])
                case "answer":
                    answer(*luck.sample(held, len(held) // 3))
                case "lapse" if luck.random() < 0.2:
                    lapse()
            held = held[-40:]

    at_once(work)
    for job_id in jobs:
        check_totals(job_id)
    for _ in itertools.takewhile(bool, iter(drain, 0)):
        continue
    for job_id in jobs:
        assert check_totals(job_id).state == "finalizing"
        assert set(states(job_id)) <= {"done", "failed"}
        assert all(item.lease_expires_at is None for item in item_rows(job_id))


def drain() -> int:
    lapse()
    items = take()
    finish(*items)
    return len(items)
