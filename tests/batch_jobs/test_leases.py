"""Claims, leases and fencing numbers, against PostgreSQL."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

from django.db import connections

from batch_jobs import items, leases
from batch_jobs.contracts import SummaryItem
from batch_jobs.facade import forfeit, read_items
from batch_jobs.ports import BatchAnswer
from tests.batch_jobs.cast import Tenant

LEASE_S = 60


def item_of(tenant: Tenant, job_id: UUID, custom_id: str) -> SummaryItem:
    (found,) = [
        item for item in read_items(tenant.organization_id, job_id) if item.custom_id == custom_id
    ]
    return found


def answer_to(request_id: UUID, text: str = "short") -> BatchAnswer:
    return BatchAnswer(request_id, text, prompt_tokens=10, cached_tokens=4, completion_tokens=3)


def test_a_claim_stores_the_lease_and_a_fresh_request_id(acme: Tenant) -> None:
    job_id = acme.submit("a")
    (claimed,) = leases.claim(5, LEASE_S)

    assert claimed.document == "text of a"
    assert (claimed.organization_id, claimed.project_id, claimed.key_id) == (
        acme.organization_id,
        acme.project_id,
        acme.key_id,
    )
    assert (claimed.state, claimed.attempts, claimed.lease_token) == ("leased", 1, 1)
    stored = item_of(acme, job_id, "a")
    assert (stored.state, stored.request_id) == ("leased", claimed.request_id)
    assert leases.claim(5, LEASE_S) == []


def test_concurrent_claimers_never_get_the_same_item(acme: Tenant) -> None:
    acme.submit(*(f"doc-{number}" for number in range(60)))
    claimers = 4
    together = threading.Barrier(claimers)

    def claim_all() -> list[int]:
        try:
            got: list[int] = []
            together.wait(10)
            while claimed := leases.claim(3, LEASE_S):
                got.extend(item.item_id for item in claimed)
            return got
        finally:
            connections.close_all()

    with ThreadPoolExecutor(claimers) as threads:
        shares = list(threads.map(lambda _: claim_all(), range(claimers)))

    counted = Counter(item_id for share in shares for item_id in share)
    assert len(counted) == 60
    assert set(counted.values()) == {1}


def test_tenants_take_turns_whatever_the_length_of_their_queues(
    acme: Tenant, globex: Tenant
) -> None:
    acme.submit(*(f"doc-{number}" for number in range(20)))
    globex.submit("first", "second", "third")
    claimed = leases.claim(6, LEASE_S)

    shares = Counter(item.organization_id for item in claimed)
    assert shares == {acme.organization_id: 3, globex.organization_id: 3}


def test_an_expired_lease_is_claimed_again_under_another_request_id(acme: Tenant) -> None:
    acme.submit("a")
    (dead,) = leases.claim(5, lease_s=0)
    (heir,) = leases.claim(5, LEASE_S)

    assert heir.item_id == dead.item_id
    assert heir.lease_token > dead.lease_token
    assert heir.attempts == 2
    assert heir.request_id != dead.request_id


def test_a_write_with_a_stale_fencing_number_changes_nothing(acme: Tenant) -> None:
    job_id = acme.submit("a")
    (dead,) = leases.claim(5, lease_s=0)
    (heir,) = leases.claim(5, LEASE_S)

    assert not items.store_answer(dead, answer_to(dead.request_id, "stale"))
    assert not items.retry(dead, after_s=0)
    assert not items.defer(dead, after_s=0)
    assert not items.fail(dead, "stale", "stale")
    assert items.store_answer(heir, answer_to(heir.request_id, "fresh"))
    assert not items.finish(dead, 99)
    assert items.finish(heir, 7)
    assert not items.finish(heir, 7)
    stored = item_of(acme, job_id, "a")
    assert (stored.state, stored.summary, stored.charge_pico) == ("done", "fresh", 7)


def test_an_answered_item_is_claimed_again_only_for_its_charge(acme: Tenant) -> None:
    acme.submit("a")
    (dead,) = leases.claim(5, lease_s=0)
    items.store_answer(dead, answer_to(dead.request_id))
    (heir,) = leases.claim(5, LEASE_S)

    assert (heir.state, heir.request_id, heir.attempts) == ("answered", dead.request_id, 1)
    assert not items.finish(dead, 7)
    assert items.finish(heir, 7)


def test_a_renewed_lease_is_kept_and_a_lost_one_is_not_renewed(acme: Tenant) -> None:
    acme.submit("a", "b")
    first, second = leases.claim(5, lease_s=0)
    leases.renew([first], LEASE_S)
    (heir,) = leases.claim(5, lease_s=0)
    leases.renew([second], LEASE_S)

    assert heir.item_id == second.item_id
    assert [item.item_id for item in leases.claim(5, LEASE_S)] == [second.item_id]


def test_an_unanswered_attempt_is_forfeited_and_its_late_answer_refused(acme: Tenant) -> None:
    acme.submit("a")
    (dead,) = leases.claim(5, LEASE_S)
    stranger = uuid4()

    assert forfeit([dead.request_id, stranger]) == {dead.request_id}
    assert not items.store_answer(dead, answer_to(dead.request_id))
    (heir,) = leases.claim(5, LEASE_S)
    assert (heir.item_id, heir.attempts) == (dead.item_id, 2)
    assert forfeit([dead.request_id]) == {dead.request_id}, "repeated finishes decide the same"
    assert items.store_answer(heir, answer_to(heir.request_id))


def test_a_stored_answer_is_not_forfeited(acme: Tenant) -> None:
    job_id = acme.submit("a")
    (item,) = leases.claim(5, LEASE_S)
    items.store_answer(item, answer_to(item.request_id))

    assert forfeit([item.request_id]) == set()
    items.finish(item, 7)
    assert forfeit([item.request_id]) == set()
    assert item_of(acme, job_id, "a").state == "done"


def test_a_deferred_item_was_no_attempt(acme: Tenant) -> None:
    acme.submit("a")
    (first,) = leases.claim(5, LEASE_S)
    assert items.defer(first, after_s=0)
    (second,) = leases.claim(5, LEASE_S)

    assert second.attempts == 1
    assert forfeit([first.request_id]) == set()


def test_an_item_back_in_the_queue_waits_for_its_time(acme: Tenant) -> None:
    acme.submit("a")
    (item,) = leases.claim(5, LEASE_S)
    assert items.retry(item, after_s=3600)

    assert leases.claim(5, LEASE_S) == []
