"""A key's quota holds for all keys that rotations made of it, with one counter."""

from dataclasses import replace

import pytest

from billing.contracts import (
    HoldRefusal,
    QuotaInvalid,
    QuotaMetric,
    QuotaPeriod,
    QuotaScope,
    QuotaWanted,
    UsageCounts,
)
from billing.facade import hold, quotas, reconcile, replace_quotas, set_quota, settle
from tenants.contracts import Actor
from tenants.facade import issue_key, operator_of, rotate_key
from tests.billing.cast import Tenant, make_tenant, refusals, used

EXCEEDED = HoldRefusal.QUOTA_EXCEEDED.value
GRACE_S = 3600


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """The tenant whose key is rotated."""
    return make_tenant("acme")


def operator(tenant: Tenant) -> Actor:
    """Who sets the limits and rotates the keys."""
    return operator_of(tenant.organization_id)


def tokens_of(tenant: Tenant, limit: int) -> QuotaWanted:
    """So many tokens a day for the tenant's key."""
    return QuotaWanted(
        QuotaScope.KEY, QuotaMetric.TOKENS, QuotaPeriod.DAY, limit, scope_id=tenant.key_id
    )


def rotated(tenant: Tenant, grace_s: int = GRACE_S) -> Tenant:
    """The same tenant with the successor of its key."""
    issued = rotate_key(operator(tenant), tenant.key_id, grace_s)
    return replace(tenant, key_id=issued.key_id, secret=issued.secret)


def counted(tenant: Tenant) -> list[tuple[int, int]]:
    """What each quota's window has used and holds."""
    return [
        (subject.used_amount, subject.held_amount)
        for quota in quotas(operator(tenant))
        for subject in quota.subjects
    ]


def test_a_successor_has_what_its_predecessor_left_of_the_quota(acme: Tenant) -> None:
    set_quota(operator(acme), tokens_of(acme, 250))
    before = acme.held()
    settle([used(before, UsageCounts(60, 0, 40))])

    new = rotated(rotated(acme, 0), 0)
    outcomes = hold([new.request(), new.request()])

    assert refusals(outcomes) == [None, EXCEEDED]
    assert counted(acme) == [(100, 100)]
    assert reconcile() == []


def test_both_keys_of_a_grace_share_one_counter(acme: Tenant) -> None:
    set_quota(operator(acme), tokens_of(acme, 250))
    begun = acme.held()
    new = rotated(acme)

    outcomes = [hold([tenant.request()])[0] for tenant in (new, acme, new)]
    settle([used(begun, UsageCounts(60, 0, 40))])

    assert refusals(outcomes) == [None, EXCEEDED, EXCEEDED]
    assert counted(acme) == [(100, 100)]
    assert reconcile() == []


def test_a_quota_set_on_a_successor_counts_what_its_predecessor_used(acme: Tenant) -> None:
    settle([used(acme.held(), UsageCounts(60, 0, 40))])
    new = rotated(acme)

    quota = set_quota(operator(acme), tokens_of(new, 150))
    outcomes = hold([new.request(), acme.request()])

    assert quota.wanted.scope_id == acme.key_id
    assert refusals(outcomes) == [EXCEEDED, EXCEEDED]
    assert counted(acme) == [(100, 0)]


def test_a_quota_set_on_a_successor_stands_in_for_its_predecessors(acme: Tenant) -> None:
    before = set_quota(operator(acme), tokens_of(acme, 150))
    new = rotated(acme)

    after = set_quota(operator(acme), tokens_of(new, 1_000))

    [standing] = quotas(operator(acme))
    assert standing.quota_id == after.quota_id == before.quota_id
    assert standing.wanted.limit_amount == 1_000


def test_two_keys_of_one_line_have_no_two_quotas_for_the_same_thing(acme: Tenant) -> None:
    new = rotated(acme)

    with pytest.raises(QuotaInvalid):
        replace_quotas(operator(acme), [tokens_of(acme, 1), tokens_of(new, 2)])

    assert quotas(operator(acme)) == []


def test_another_key_is_not_counted(acme: Tenant) -> None:
    set_quota(operator(acme), tokens_of(acme, 100))
    rotated(acme)
    issued = issue_key(acme.organization_id, acme.project_id, "other")
    other = replace(acme, key_id=issued.key_id)

    assert refusals(hold([other.request()])) == [None]
    assert counted(acme) == []
