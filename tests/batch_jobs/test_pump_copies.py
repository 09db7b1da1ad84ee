"""Items that share another's answer end with it: many of them in pages, whoever dies between."""

from collections import Counter
from collections.abc import Iterator
from uuid import UUID

import pytest
from django.db import connections
from django.test import override_settings

from batch_jobs.invariants import INVARIANTS
from batch_jobs.models import BulkItem, BulkJob
from batch_jobs.pump.claiming import ClaimedItem
from batch_jobs.pump.transitions import Ended, EndedList, end_items
from tests.batch_jobs.batch_cast import MODEL, selling
from tests.batch_jobs.cast import Tenant
from tests.batch_jobs.pump_cast import (
    Node,
    answer,
    check_totals,
    finish,
    item_rows,
    job_row,
    lapse,
    plant,
    plant_tree,
    states,
    take,
)
from tests.batch_jobs.scripted_pipeline import ScriptedPipeline, Wakes, turn
from tests.batch_jobs.summary_cast import SummaryTenant, document, make_summary_tenant, tend_now
from tests.batch_jobs.summary_cast import check_books as check_summary
from tests.batch_jobs.test_pump_races import at_once

HOUSEKEEPER = "housekeeper"
PAGE = 10


@pytest.fixture(autouse=True)
def small_pages() -> Iterator[None]:
    """Ten copies end at a time."""
    with override_settings(BATCH_COPIES_MAX=PAGE):
        yield


def add_copies(job_id: UUID, custom_id: str, copies: int) -> int:
    """So many documents more that are the same as this one; its item."""
    leader = BulkItem.objects.using(HOUSEKEEPER).get(job_id=job_id, custom_id=custom_id)
    with connections[HOUSEKEEPER].cursor() as cursor:
        cursor.execute(
            "INSERT INTO bulk_item (organization_id, job_id, line, custom_id, same_as_id, state,"
            " place, source_offset, source_bytes, part, parts_left, copies, bound_pico, retry_at,"
            " lease_token, attempts, prompt_tokens, cached_tokens, completion_tokens, charge_pico)"
            " SELECT organization_id, job_id, 1, custom_id || ' copy ' || number, id, 'waiting',"
            " 0, 0, 0, 0, 0, 0, 0, '2000-01-01Z', 0, 0, 0, 0, 0, 0"
            " FROM bulk_item, generate_series(1, %s) AS number WHERE id = %s",
            [copies, leader.id],
        )
    BulkItem.objects.using(HOUSEKEEPER).filter(id=leader.id).update(copies=copies)
    job = job_row(job_id)
    job.items_total += copies
    job.save(update_fields=["items_total"])
    return leader.id


def refused(item: ClaimedItem) -> Ended:
    """Its end as one that cannot be computed."""
    return Ended(item, 0, 400, "too_odd", "it is too odd")


def end_all(*ends: Ended) -> list[EndedList]:
    """Ends them page by page, as a pump does that nobody kills."""
    pages = [end_items(ends)]
    while crowded := pages[-1].crowded:
        pages.append(end_items([end for end in ends if end.item.item_id in crowded]))
    return pages


def check_invariants(job_id: UUID) -> None:
    """What `reconcile` looks at; these items were answered by no request."""
    with connections[HOUSEKEEPER].cursor() as cursor:
        for said, _, query in INVARIANTS:
            cursor.execute(query)
            assert [row for row in cursor.fetchall() if job_id in row] == [], said


def test_copies_end_in_pages_and_the_item_they_share_after_them(acme: Tenant) -> None:
    job_id = plant(acme, "a")
    leader = add_copies(job_id, "a", 25)
    [item] = take()
    answer(item)
    first = end_items([Ended(item, 7)])
    after_one = Counter(states(job_id))
    held = check_totals(job_id)
    check_invariants(job_id)
    pages = end_all(Ended(item, 7))

    assert (set(first.crowded), len(first.items), first.has_finalized) == ({leader}, PAGE, False)
    assert after_one == {"answered": 1, "done": PAGE, "waiting": 15}
    assert (held.state, held.items_completed, held.charge_pico) == ("in_progress", PAGE, 0)
    assert [len(page.items) for page in pages] == [PAGE, 6]
    assert [page.has_finalized for page in pages] == [False, True]
    job = check_totals(job_id)
    assert (job.state, job.items_completed, job.charge_pico) == ("finalizing", 26, 7)
    check_invariants(job_id)


@pytest.mark.parametrize("copies", [1, PAGE])
def test_few_copies_end_at_once(acme: Tenant, copies: int) -> None:
    job_id = plant(acme, "a")
    add_copies(job_id, "a", copies)
    [item] = take()
    answer(item)
    ended = end_items([Ended(item, 7)])

    assert (len(ended.items), ended.crowded, ended.has_finalized) == (copies + 1, frozenset(), True)
    assert check_totals(job_id).items_completed == copies + 1


def test_who_dies_between_two_pages_leaves_the_rest_to_the_next(acme: Tenant) -> None:
    job_id = plant(acme, "a")
    add_copies(job_id, "a", 25)
    [item] = take()
    answer(item)
    end_items([Ended(item, 7)])
    lapse()
    [again] = take()
    late = end_items([Ended(item, 7)])
    end_all(Ended(again, 7))

    assert (again.state, again.request_id) == ("answered", item.request_id)
    assert late == (frozenset(), False, frozenset())
    assert set(states(job_id)) == {"done"}
    assert check_totals(job_id).charge_pico == 7


def test_copies_of_what_fails_fail_whoever_dies_between_two_pages(acme: Tenant) -> None:
    job_id = plant(acme, "a")
    add_copies(job_id, "a", 25)
    [item] = take()
    first = end_items([refused(item)])
    lapse()
    [again] = take()
    end_all(refused(again))

    assert first.crowded == {item.item_id}
    job = check_totals(job_id)
    assert (job.state, job.items_failed) == ("finalizing", 26)
    assert {(row.state, row.error_code) for row in item_rows(job_id)} == {("failed", "too_odd")}
    check_invariants(job_id)


def test_a_part_that_fails_fells_its_document_after_all_its_copies(acme: Tenant) -> None:
    job_id = plant_tree(acme, Node("doc", [Node("p0"), Node("p1", [Node("p2"), Node("p3")])]))
    root = add_copies(job_id, "doc", 25)
    bad, other, third = take()
    finish(other)
    first = end_items([refused(bad), refused(third)])
    after_one = Counter(states(job_id))
    pages = end_all(refused(bad), refused(third))

    assert first.crowded == {bad.item_id, third.item_id}
    assert after_one == {"failed": PAGE, "waiting": 15 + 2, "leased": 2, "done": 1}
    assert root in pages[-1].items
    job = check_totals(job_id)
    assert (job.state, job.items_failed, job.charge_pico) == ("finalizing", 26, 7)
    assert not {"waiting", "queued", "leased"} & set(states(job_id))
    check_invariants(job_id)


def test_a_part_that_is_done_ends_no_copies_of_its_document(acme: Tenant) -> None:
    job_id = plant_tree(acme, Node("doc", [Node("p0"), Node("p1")]))
    add_copies(job_id, "doc", 25)
    first, second = take()
    answer(first, second)

    assert end_items([Ended(first, 7), Ended(second, 7)]).crowded == frozenset()
    assert check_totals(job_id).items_completed == 0
    [root] = take()
    answer(root)
    end_all(Ended(root, 7))
    assert check_totals(job_id).state == "finalizing"
    check_invariants(job_id)


def test_what_few_share_does_not_wait_for_what_many_share(acme: Tenant, globex: Tenant) -> None:
    large, small = plant(acme, "a"), plant(globex, "b", "c")
    leader = add_copies(large, "a", 25)
    add_copies(small, "b", 3)
    items = take()
    answer(*items)
    first = end_items([Ended(item, 7) for item in items])

    assert first.crowded == {leader}
    assert check_totals(small).state == "finalizing"
    assert check_totals(large).items_completed == PAGE - 3


def test_a_pump_ends_all_copies_and_tells_when_the_job_is_done(acme: Tenant) -> None:
    job_id = plant(acme, "a", "b", "c")
    add_copies(job_id, "a", 95)
    add_copies(job_id, "b", 95)
    port, wakes = ScriptedPipeline(), Wakes()
    turn(port, wakes)

    job = check_totals(job_id)
    assert (job.state, job.items_completed) == ("finalizing", 193)
    assert sorted(port.texts) == ["a", "b", "c"]
    assert wakes.tendings == 1


@pytest.fixture
def door(django_database: object) -> Iterator[SummaryTenant]:
    """Somebody who has the same document many times."""
    with selling(MODEL):
        yield make_summary_tenant("acme")


def many_times(door: SummaryTenant, copies: int) -> str:
    """A running job over one text, and so many more of the same."""
    same = [document(str(number), "the same text") for number in range(copies + 1)]
    summary_id: str = door.post(input_file_ids=[door.upload(same)]).json()["id"]
    tend_now()
    return summary_id


@pytest.mark.parametrize("end", ["cancel", "expire"])
def test_a_job_is_stopped_while_its_copies_end(door: SummaryTenant, end: str) -> None:
    summary_id = many_times(door, 25)
    [item] = take()
    answer(item)
    end_items([Ended(item, 7)])
    if end == "cancel":
        door.act("cancel", summary_id)
    else:
        BulkJob.objects.using(HOUSEKEEPER).filter(id=item.job_id).update(
            expires_at="2020-01-01T00:00:00Z"
        )
    tend_now()
    while_held = door.read(summary_id)["status"]
    # Who has it dies, and what nobody waits for is only charged.
    lapse()
    [again] = take()
    rest = end_items([Ended(again, 7)])
    tend_now()
    tend_now()

    ended = "cancelled" if end == "cancel" else "expired"
    assert while_held in ("cancelling", "finalizing")
    assert rest == EndedList(frozenset({item.item_id}), False, frozenset())
    job = door.read(summary_id)
    assert job["status"] == ended
    assert job["documents"]["completed"] == PAGE + 1
    assert Counter(states(item.job_id)) == {"done": PAGE + 1, ended: 15}
    rows = door.results(summary_id)
    assert [row["summary"] for row in rows].count(f"answer {item.item_id}") == PAGE + 1
    check_summary(summary_id)


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_is_cancelled_in_the_midst_of_its_copies(door: SummaryTenant, fails: bool) -> None:
    summary_id = many_times(door, 300)
    [item] = take()
    if not fails:
        answer(item)

    def work(number: int) -> None:
        if number == 0:
            end_all(refused(item) if fails else Ended(item, 7))
        elif number == 1:
            door.act("cancel", summary_id)
            tend_now()

    at_once(work)
    tend_now()
    tend_now()

    seen = Counter(states(item.job_id))
    ended = "failed" if fails else "done"
    assert door.read(summary_id)["status"] == "cancelled"
    assert set(seen) <= {ended, "cancelled"}
    assert seen[ended] >= 1
    check_summary(summary_id)


def test_copies_that_failed_are_retried_with_what_they_share(door: SummaryTenant) -> None:
    summary_id = many_times(door, 25)
    [item] = take()
    end_all(refused(item))
    tend_now()
    failed = door.read(summary_id)
    door.act("retry", summary_id)
    tend_now()
    [again] = take()
    answer(again)
    end_all(Ended(again, 7))
    tend_now()

    assert (failed["status"], failed["documents"]["failed"]) == ("completed", 26)
    job = door.read(summary_id)
    assert (job["status"], job["documents"]["completed"]) == ("completed", 26)
    assert {row["status"] for row in door.results(summary_id)} == {"done"}
    check_summary(summary_id)


@pytest.mark.long
def test_twenty_thousand_copies_end_in_pages_that_are_killed(acme: Tenant) -> None:
    job_id = plant(acme, "a", "b")
    add_copies(job_id, "a", 20_000)
    with override_settings(BATCH_COPIES_MAX=3000):
        items = take()
        answer(*items)
        completed = []
        while crowded := end_items([Ended(item, 7) for item in items]).crowded:
            assert len(crowded) == 1
            completed.append(job_row(job_id).items_completed)
            lapse()
            items = take()

    assert completed == [3000 * page + 1 for page in range(1, 7)]
    job = check_totals(job_id)
    assert (job.state, job.items_completed, job.charge_pico) == ("finalizing", 20_002, 14)
    check_invariants(job_id)
