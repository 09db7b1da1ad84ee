"""Claims, ends and returns of items: what PostgreSQL promises, whoever dies at whatever moment."""

from collections import Counter

import pytest
from django.db import connections
from django.db.models.functions import Now

from batch_jobs.facade import forfeit
from batch_jobs.models import BulkAttempt, BulkItem, BulkJob
from batch_jobs.pump.claiming import claim
from batch_jobs.pump.transitions import (
    Attempt,
    Ended,
    HeldBack,
    Returned,
    end_items,
    hold_back,
    renew,
    return_items,
)
from tests.batch_jobs.cast import Tenant
from tests.batch_jobs.pump_cast import (
    GRACE_S,
    LEASE_S,
    Node,
    answer,
    check_totals,
    fail,
    finish,
    item_rows,
    job_row,
    lapse,
    plant,
    plant_tree,
    states,
    take,
)

HOUSEKEEPER = "housekeeper"


def test_a_line_is_claimed_answered_and_charged_once(acme: Tenant) -> None:
    job_id = plant(acme, "a", "b")
    items = take()
    assert take() == []
    assert [item.state for item in items] == ["leased", "leased"]
    assert answer(items[0]) == {items[0].item_id}
    assert answer(items[0]) == frozenset()
    assert end_items([Ended(items[0], 7)])[0] == {items[0].item_id}
    assert end_items([Ended(items[0], 7)]) == (frozenset(), False, frozenset())
    job = check_totals(job_id)
    assert (job.items_completed, job.charge_pico, job.state) == (1, 7, "in_progress")


def test_the_last_end_finalizes_the_job(acme: Tenant) -> None:
    job_id = plant(acme, "a", "b")
    first, second = take()
    finish(first)
    ended, has_finalized, _ = end_items([Ended(second, 0, 400, "invalid_value", "no")])
    assert ended == {second.item_id}
    assert has_finalized
    job = check_totals(job_id)
    assert (job.state, job.items_completed, job.items_failed) == ("finalizing", 1, 1)
    failed = item_rows(job_id)[1]
    assert (failed.status_code, failed.error_code, failed.error_message) == (
        400,
        "invalid_value",
        "no",
    )


def test_tenants_and_their_jobs_take_turns(acme: Tenant, globex: Tenant) -> None:
    large = plant(acme, *map(str, range(50)))
    small = plant(acme, *map(str, range(10)))
    other = plant(globex, *map(str, range(50)))
    taken = Counter(item.job_id for item in take(16))
    assert taken[other] == 8
    assert taken[large] == taken[small] == 4


def test_one_job_takes_every_seat_when_it_is_alone(acme: Tenant) -> None:
    plant(acme, *map(str, range(50)))
    items = take(32)
    assert [item.line for item in sorted(items, key=lambda item: item.item_id)] == list(
        range(1, 33)
    )


def test_of_more_jobs_than_a_claim_looks_at_none_is_always_last(acme: Tenant) -> None:
    jobs = {plant(acme, "a") for _ in range(6)}
    seen = {item.job_id for _ in range(3) for item in claim(8, LEASE_S, 2)}
    assert seen == jobs


def test_a_claim_that_lapsed_changes_nothing_any_more(acme: Tenant) -> None:
    job_id = plant(acme, "a")
    (first,) = take()
    lapse()
    (second,) = take()
    assert second.item_id == first.item_id
    assert second.request_id != first.request_id
    assert (first.attempts, second.attempts) == (1, 2)
    assert answer(first) == frozenset()
    assert fail(first) == frozenset()
    assert renew([first], LEASE_S, GRACE_S) == frozenset()
    assert return_items([Returned(first, Attempt.FAILED)]) == frozenset()
    assert finish(second) == {second.item_id}
    check_totals(job_id)


def test_what_was_answered_is_claimed_only_for_its_charge(acme: Tenant) -> None:
    job_id = plant(acme, "a")
    (first,) = take()
    answer(first)
    lapse()
    BulkJob.objects.using(HOUSEKEEPER).filter(id=job_id).update(state="cancelling")
    (second,) = take()
    assert (second.state, second.request_id, second.attempts) == ("answered", first.request_id, 1)
    assert BulkAttempt.objects.using(HOUSEKEEPER).filter(item_id=first.item_id).count() == 1
    assert end_items([Ended(first, 7)])[0] == frozenset()
    assert end_items([Ended(second, 7)])[0] == {second.item_id}
    assert check_totals(job_id).state == "cancelling"


@pytest.mark.parametrize("state", ["paused", "cancelling", "finalizing"])
def test_a_lapsed_lease_of_a_job_that_is_stopped_is_given_back(acme: Tenant, state: str) -> None:
    job_id = plant(acme, "a")
    take()
    lapse()
    BulkJob.objects.using(HOUSEKEEPER).filter(id=job_id).update(state=state)
    assert take() == []
    assert states(job_id) == ["queued"]


def test_another_tenants_item_cannot_be_touched(acme: Tenant, globex: Tenant) -> None:
    from dataclasses import replace

    job_id = plant(acme, "a")
    (item,) = take()
    stolen = replace(item, organization_id=globex.organization_id)
    assert answer(stolen) == frozenset()
    assert fail(stolen) == frozenset()
    assert renew([stolen], LEASE_S, GRACE_S) == frozenset()
    assert return_items([Returned(stolen, Attempt.FAILED)]) == frozenset()
    assert states(job_id) == ["leased"]


def test_an_attempt_counts_unless_it_was_not_made(acme: Tenant) -> None:
    job_id = plant(acme, "a")
    attempts = []
    for kind in Attempt:
        (item,) = take()
        attempts.append(item.attempts)
        assert return_items([Returned(item, kind)]) == {item.item_id}
    (row,) = item_rows(job_id)
    assert attempts == [1, 2, 2]
    assert (row.state, row.attempts, row.request_id) == ("queued", 1, None)
    assert BulkAttempt.objects.using(HOUSEKEEPER).filter(item_id=row.id).count() == 2


def test_what_is_given_back_waits(acme: Tenant) -> None:
    plant(acme, "a")
    (item,) = take()
    return_items([Returned(item, Attempt.FAILED, wait_s=3600)])
    assert take() == []


def test_a_job_that_is_held_back_is_not_claimed(acme: Tenant) -> None:
    job_id = plant(acme, "a", "b")
    (item,) = take(1)
    hold_back([HeldBack(job_id, acme.organization_id, 3600)])
    lapse()
    assert take() == []
    hold_back([HeldBack(job_id, acme.organization_id, 1, "balance")])
    job = job_row(job_id)
    assert (job.state, job.pause_reason) == ("paused", "balance")
    assert fail(item) == {item.item_id}


def test_a_lost_request_is_forfeited_once_and_its_late_answer_refused(acme: Tenant) -> None:
    job_id = plant(acme, "a", "b")
    lost, kept = take()
    answer(kept)
    assert forfeit([lost.request_id, kept.request_id]) == {lost.request_id}
    assert states(job_id) == ["queued", "answered"]
    assert answer(lost) == frozenset()
    assert forfeit([lost.request_id]) == {lost.request_id}
    (again,) = take()
    assert forfeit([lost.request_id]) == {lost.request_id}
    assert states(job_id) == ["leased", "answered"]
    finish(again)
    end_items([Ended(kept, 7)])
    assert forfeit([lost.request_id, kept.request_id, again.request_id]) == {lost.request_id}
    check_totals(job_id)


def test_a_cancelled_job_wants_its_lines_no_more(acme: Tenant) -> None:
    job_id = plant(acme, "a", "b")
    items = take()
    assert renew(items, LEASE_S, GRACE_S) == {item.item_id for item in items}
    answer(items[0])
    BulkJob.objects.using(HOUSEKEEPER).filter(id=job_id).update(
        state="cancelling", cancelling_at="2026-01-01T00:00:00Z"
    )
    assert renew(items, LEASE_S, GRACE_S) == {items[0].item_id}


def test_what_runs_when_its_job_is_cancelled_may_end_for_a_while(acme: Tenant) -> None:
    job_id = plant(acme, "a")
    [item] = take()
    BulkJob.objects.using(HOUSEKEEPER).filter(id=job_id).update(
        state="cancelling", cancelling_at=Now()
    )

    assert renew([item], LEASE_S, GRACE_S) == {item.item_id}
    assert renew([item], LEASE_S, 0) == frozenset()
    answer(item)
    end_items([Ended(item, 7)])
    assert states(job_id) == ["done"]
    assert check_totals(job_id).charge_pico == 7


def test_a_job_never_has_more_under_way_than_its_budget_covers(acme: Tenant) -> None:
    job_id = plant(acme, *"abcdef", budget_pico=25)
    first = take()
    assert len(first) == 2
    assert take() == []
    finish(*first)  # at 7 each: 11 are left
    (third,) = take()
    assert job_row(job_id).state == "in_progress"
    finish(third)
    assert take() == []
    job = check_totals(job_id)
    assert (job.state, job.pause_reason, job.charge_pico) == ("paused", "budget", 21)


def test_what_is_bound_anew_is_claimed_first_if_its_job_can_pay_for_it(acme: Tenant) -> None:
    job_id = plant(acme, *"abcd", budget_pico=35)
    first, second, third = take()
    assert {item.bound_pico for item in (first, second, third)} == {10}
    finish(second, third)  # at 7 each: 21 are left
    return_items([Returned(first, Attempt.NOT_MADE, bound_pico=15)])
    [again] = take()
    assert (again.item_id, again.bound_pico, again.attempts) == (first.item_id, 15, 1)
    return_items([Returned(again, Attempt.NOT_MADE, bound_pico=22)])
    assert take() == []
    job = check_totals(job_id)
    assert (job.state, job.pause_reason) == ("paused", "budget")
    BulkJob.objects.using(HOUSEKEEPER).filter(id=job_id).update(state="in_progress", budget_pico=46)
    assert [item.bound_pico for item in take()] == [22, 10]


def test_items_of_a_job_without_a_budget_are_bound_to_nothing(acme: Tenant) -> None:
    plant(acme, "a")
    [item] = take()
    assert item.bound_pico is None


def test_a_preview_gets_back_what_was_forfeited(acme: Tenant) -> None:
    job_id = plant(acme, *"abc", claims_left=2)
    lost, kept = take()
    finish(kept)
    assert forfeit([lost.request_id, kept.request_id]) == {lost.request_id}
    assert job_row(job_id).claims_left == 1
    assert forfeit([lost.request_id]) == {lost.request_id}
    assert job_row(job_id).claims_left == 1
    assert len(take()) == 1


def test_a_preview_claims_so_many_and_a_claim_that_came_to_nothing_is_one_more(
    acme: Tenant,
) -> None:
    job_id = plant(acme, *"abcdef", claims_left=2)
    first, second = take()
    assert take() == []
    return_items([Returned(first, Attempt.NOT_MADE)])
    assert job_row(job_id).claims_left == 1
    (third,) = take()
    finish(second, third)
    assert take() == []
    assert check_totals(job_id).state == "in_progress"


def test_a_long_document_is_done_when_its_parts_are(acme: Tenant) -> None:
    leaves = [Node("p0"), Node("p1", [Node("p10"), Node("p11")])]
    job_id = plant_tree(acme, Node("doc", leaves))
    first = take()
    assert len(first) == 3
    assert not any(item.parts for item in first)
    finish(*first)
    (middle,) = take()
    assert (middle.parts, middle.custom_id) == (True, None)
    assert check_totals(job_id).items_completed == 0
    finish(middle)
    (root,) = take()
    assert (root.parts, root.custom_id) == (True, "doc")
    finish(root)
    job = check_totals(job_id)
    assert (job.state, job.items_completed, job.charge_pico) == ("finalizing", 1, 35)


def test_what_merges_parts_goes_before_what_is_fresh(acme: Tenant) -> None:
    tree = plant_tree(acme, Node("doc", [Node("p0")]))
    (part,) = take(1)
    BulkItem.objects.using(HOUSEKEEPER).create(
        organization_id=acme.organization_id, job_id=tree, line=1, place=-5, custom_id="fresh"
    )
    finish(part)
    (root,) = take(1)
    assert root.custom_id == "doc"


def test_a_part_that_fails_fells_its_document(acme: Tenant) -> None:
    leaves = [Node("p0"), Node("p1", [Node("p10"), Node("p11")]), Node("p2")]
    job_id = plant_tree(acme, Node("doc", leaves))
    bad, running = take(2)
    assert fail(bad, code="context_length_exceeded") == {bad.item_id} | {
        item.id for item in item_rows(job_id) if item.state in ("failed", "cancelled")
    }
    assert Counter(states(job_id)) == {"failed": 2, "cancelled": 3, "leased": 1}
    root = item_rows(job_id)[0]
    assert (root.state, root.error_code) == ("failed", "context_length_exceeded")
    assert check_totals(job_id).state == "in_progress"
    assert renew([running], LEASE_S, GRACE_S) == frozenset()
    return_items([Returned(running, Attempt.BROKEN_OFF)])
    job = check_totals(job_id)
    assert (job.state, job.items_failed) == ("finalizing", 1)


def test_the_same_documents_end_with_the_one_they_share(acme: Tenant) -> None:
    job_id = plant(acme, "a", "b", "c", "d")
    rows = item_rows(job_id)
    twins = BulkItem.objects.using(HOUSEKEEPER).filter(id__in=[rows[2].id, rows[3].id])
    twins.update(state="waiting", same_as_id=rows[0].id)
    BulkItem.objects.using(HOUSEKEEPER).filter(id=rows[0].id).update(copies=2)
    first, second = take()
    assert finish(first) == {rows[0].id, rows[2].id, rows[3].id}
    assert states(job_id) == ["done", "leased", "done", "done"]
    fail(second)
    job = check_totals(job_id)
    assert (job.state, job.items_completed, job.charge_pico) == ("finalizing", 3, 7)


def test_functions_are_the_workers_alone_and_bound_by_no_scope(acme: Tenant) -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT current_user")
        assert cursor.fetchone() == ("headrace_app",)
        cursor.execute("SELECT count(*) FROM bulk_item")
        assert cursor.fetchone() == (0,)
