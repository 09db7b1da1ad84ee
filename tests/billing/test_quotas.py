"""A quota admits what fits, of each scope and metric, and counts exactly what was used."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from uuid import UUID, uuid4

import pytest
from django.db import ProgrammingError, connections
from uuid_utils.compat import uuid7

from billing.contracts import (
    HoldOutcome,
    HoldRefusal,
    Quota,
    QuotaInvalid,
    QuotaMetric,
    QuotaNotFound,
    QuotaPeriod,
    QuotaScope,
    QuotaSubject,
    QuotaWanted,
    UsageCounts,
)
from billing.facade import (
    change_quota,
    hold,
    lift_quota,
    quotas,
    reconcile,
    replace_quotas,
    set_quota,
    settle,
    sweep,
    void,
)
from billing.models import Hold, QuotaCounter, UsageEvent
from tenants.contracts import Actor, ActorKind, Permission, PermissionDenied
from tenants.facade import create_project, issue_key, tenant_scope
from tenants.models import Membership
from tenants.webhooks.fan_out import fan_out
from tests.billing.cast import Tenant, at_once, colleague, make_tenant, refusals, used
from tests.books import rows

DAY, MONTH = QuotaPeriod.DAY, QuotaPeriod.MONTH
EXCEEDED = HoldRefusal.QUOTA_EXCEEDED.value
TOKENS_A_DAY = QuotaWanted(QuotaScope.ORGANIZATION, QuotaMetric.TOKENS, DAY, 250)


def admin(tenant: Tenant, *permissions: Permission) -> Actor:
    """Somebody who may set limits, or only do what is named."""
    return Actor(
        ActorKind.USER,
        uuid4(),
        tenant.organization_id,
        frozenset(permissions or (Permission.LIMITS_READ, Permission.LIMITS_WRITE)),
    )


def standing(tenant: Tenant, quota_id: UUID) -> list[tuple[str, int, int]]:
    """Of each subject: what was used and is held in the window that runs."""
    [quota] = [one for one in quotas(admin(tenant)) if one.quota_id == quota_id]
    return [(one.end_user, one.used_amount, one.held_amount) for one in quota.subjects]


def for_user(tenant: Tenant, name: str) -> HoldOutcome:
    """The outcome of one more request of an end user."""
    [outcome] = hold([replace(tenant.request(), end_user=name)])
    return outcome


def announced(tenant: Tenant) -> list[tuple[int, str]]:
    """The thresholds that the tenant was told of, with what was used by then."""
    found = rows(
        "SELECT (data ->> 'threshold_percent')::int, data ->> 'used' FROM tenants_outbox_event"
        " WHERE organization_id = %s AND kind = 'budget.threshold_reached' ORDER BY id",
        tenant.organization_id,
    )
    return [(percent, used_amount) for percent, used_amount in found]


@pytest.mark.parametrize(
    ("metric", "limit"),
    [
        (QuotaMetric.REQUESTS, 2),
        (QuotaMetric.TOKENS, 299),
        (QuotaMetric.INPUT_TOKENS, 120),
        (QuotaMetric.OUTPUT_TOKENS, 119),
        (QuotaMetric.SPEND, 200),
    ],
)
@pytest.mark.parametrize("period", [DAY, MONTH])
@pytest.mark.parametrize("scope", list(QuotaScope))
def test_every_scope_limits_every_metric(
    acme: Tenant, scope: QuotaScope, metric: QuotaMetric, period: QuotaPeriod, limit: int
) -> None:
    scope_id = {QuotaScope.PROJECT: acme.project_id, QuotaScope.KEY: acme.key_id}.get(scope)
    quota = set_quota(admin(acme), QuotaWanted(scope, metric, period, limit, scope_id))

    outcomes = [for_user(acme, "ann") for _ in range(3)]

    assert refusals(outcomes) == [None, None, EXCEEDED]
    in_the_way = outcomes[2].quota
    assert in_the_way is not None
    assert (in_the_way.scope, in_the_way.metric, in_the_way.period) == (scope, metric, period)
    assert (in_the_way.limit_amount, in_the_way.resets_at) == (limit, quota.resets_at)
    assert acme.balance().held_pico == 200
    assert reconcile() == []


def test_what_a_quota_does_not_cover_it_does_not_count(acme: Tenant) -> None:
    sibling = create_project(acme.organization_id, "sibling")
    key = issue_key(acme.organization_id, sibling, "other")
    other = replace(acme, project_id=sibling, key_id=key.key_id)
    quota_ids = [
        set_quota(admin(acme), QuotaWanted(scope, QuotaMetric.REQUESTS, DAY, 0, scope_id)).quota_id
        for scope, scope_id in (
            (QuotaScope.PROJECT, acme.project_id),
            (QuotaScope.KEY, acme.key_id),
            (QuotaScope.END_USER, None),
        )
    ]

    assert refusals(hold([other.request(), acme.request()])) == [None, EXCEEDED]
    assert [standing(acme, quota_id) for quota_id in quota_ids] == [[("", 0, 0)], [("", 0, 0)], []]


def test_a_refusal_by_one_quota_leaves_nothing_in_the_others(acme: Tenant) -> None:
    wide = set_quota(admin(acme), replace(TOKENS_A_DAY, limit_amount=10_000))
    set_quota(
        admin(acme),
        QuotaWanted(QuotaScope.PROJECT, QuotaMetric.REQUESTS, DAY, 1, acme.project_id),
    )
    acme.held()

    for _ in range(5):
        assert refusals(hold([acme.request()])) == [EXCEEDED]

    assert standing(acme, wide.quota_id) == [("", 0, 100)]
    assert acme.balance().held_pico == 100
    assert announced(acme) == []
    assert reconcile() == []


def test_of_several_in_the_way_the_one_that_is_so_longest_is_named(acme: Tenant) -> None:
    for period in (MONTH, DAY):
        set_quota(admin(acme), replace(TOKENS_A_DAY, period=period, limit_amount=99))

    [outcome] = hold([acme.request()])

    assert outcome.quota is not None
    assert outcome.quota.period is MONTH


def test_fifty_at_once_pass_exactly_as_often_as_the_tightest_quota_allows(acme: Tenant) -> None:
    sums = [
        set_quota(admin(acme), wanted).quota_id
        for wanted in (
            replace(TOKENS_A_DAY, limit_amount=2_000),
            replace(TOKENS_A_DAY, period=MONTH, limit_amount=5_000),
            QuotaWanted(QuotaScope.KEY, QuotaMetric.SPEND, MONTH, 1_099, acme.key_id),
            QuotaWanted(QuotaScope.END_USER, QuotaMetric.REQUESTS, DAY, 40),
        )
    ]

    outcomes = at_once([partial(for_user, acme, "ann") for _ in range(50)])

    said = refusals(outcomes)
    assert (said.count(None), said.count(EXCEEDED)) == (10, 40)
    assert [standing(acme, each)[0][2] for each in sums] == [1_000, 1_000, 1_000, 10]
    assert reconcile() == []


def test_unknown_end_users_have_their_own_limit_from_their_first_request(acme: Tenant) -> None:
    quota = set_quota(admin(acme), QuotaWanted(QuotaScope.END_USER, QuotaMetric.SPEND, DAY, 100))

    names = [name for name in ("ann", "bob") for _ in range(8)]
    outcomes = at_once([partial(for_user, acme, name) for name in names])

    for name in ("ann", "bob"):
        said = [refusals([one])[0] for one, who in zip(outcomes, names, strict=True) if who == name]
        assert (said.count(None), said.count(EXCEEDED)) == (1, 7)
    assert standing(acme, quota.quota_id) == [("ann", 0, 100), ("bob", 0, 100)]
    # Who says nobody's name is bound by the wider limits alone.
    assert refusals(hold([acme.request()] * 1)) == [None]


def test_a_first_request_beyond_the_default_of_end_users_is_refused(acme: Tenant) -> None:
    set_quota(admin(acme), QuotaWanted(QuotaScope.END_USER, QuotaMetric.SPEND, DAY, 1))

    outcomes = at_once([partial(for_user, acme, "ann") for _ in range(8)])

    assert refusals(outcomes) == [EXCEEDED] * 8
    assert acme.balance().held_pico == 0


def test_a_named_end_users_own_limit_goes_before_the_default(acme: Tenant) -> None:
    default = QuotaWanted(QuotaScope.END_USER, QuotaMetric.REQUESTS, DAY, 1)
    quota = set_quota(admin(acme), default)
    own = set_quota(admin(acme), replace(default, end_user="ann", limit_amount=3))

    assert refusals([for_user(acme, "ann") for _ in range(4)]) == [None, None, None, EXCEEDED]
    assert refusals([for_user(acme, "bob") for _ in range(2)]) == [None, EXCEEDED]
    lift_quota(admin(acme), own.quota_id)

    # The default has counted on, so ann has had more than it gives.
    assert refusals([for_user(acme, "ann")]) == [EXCEEDED]
    assert standing(acme, quota.quota_id) == [("ann", 0, 3), ("bob", 0, 1)]
    assert reconcile() == []


@pytest.mark.parametrize(
    ("metric", "counts_cached", "expected"),
    [
        (QuotaMetric.TOKENS, True, 60),
        (QuotaMetric.TOKENS, False, 40),
        (QuotaMetric.INPUT_TOKENS, True, 50),
        (QuotaMetric.INPUT_TOKENS, False, 30),
        (QuotaMetric.OUTPUT_TOKENS, False, 10),
        (QuotaMetric.REQUESTS, False, 1),
        (QuotaMetric.SPEND, False, 60),
    ],
)
def test_cached_tokens_are_reserved_and_then_counted_or_not(
    acme: Tenant, metric: QuotaMetric, counts_cached: bool, expected: int
) -> None:
    quota = set_quota(
        admin(acme),
        replace(TOKENS_A_DAY, metric=metric, limit_amount=1_000, counts_cached=counts_cached),
    )
    request = acme.held()
    reserved = standing(acme, quota.quota_id)[0][2]

    settle([used(request, UsageCounts(30, 20, 10))])

    held_fully = {QuotaMetric.INPUT_TOKENS: 60, QuotaMetric.OUTPUT_TOKENS: 40}
    assert reserved == held_fully.get(metric, 1 if metric is QuotaMetric.REQUESTS else 100)
    assert standing(acme, quota.quota_id) == [("", expected, 0)]
    assert reconcile() == []


def test_voids_and_sweeps_give_back_all_that_was_held(acme: Tenant) -> None:
    quota_ids = [
        set_quota(admin(acme), replace(TOKENS_A_DAY, metric=metric, limit_amount=500)).quota_id
        for metric in QuotaMetric
    ]
    void([acme.held().request_id])
    lost = acme.held()
    sweep(0, 0)

    assert acme.receipt(lost).state == "voided"
    assert [standing(acme, each) for each in quota_ids] == [[("", 0, 0)]] * len(QuotaMetric)
    # A policy set now counts the same: what was lost used nothing.
    later = set_quota(admin(acme), replace(TOKENS_A_DAY, period=MONTH))
    assert standing(acme, later.quota_id) in ([], [("", 0, 0)])
    assert reconcile() == []


@pytest.mark.parametrize("metric", list(QuotaMetric))
def test_a_quota_set_in_mid_window_counts_what_the_window_has_seen(
    acme: Tenant, metric: QuotaMetric
) -> None:
    settle([used(acme.held(), UsageCounts(30, 20, 10))])
    acme.held()
    before = set_quota(admin(acme), replace(TOKENS_A_DAY, limit_amount=10**6, metric=metric))
    settle([used(acme.held(), UsageCounts(1, 2, 3))])
    acme.held()

    late = set_quota(
        admin(acme), replace(TOKENS_A_DAY, period=MONTH, limit_amount=10**6, metric=metric)
    )

    assert standing(acme, before.quota_id) == standing(acme, late.quota_id)
    assert standing(acme, late.quota_id)[0][1] > 0 < standing(acme, late.quota_id)[0][2]
    assert reconcile() == []


def test_a_default_of_end_users_set_in_mid_window_counts_each_of_them(acme: Tenant) -> None:
    ann, bob = (replace(acme.request(), end_user=name) for name in ("ann", "bob"))
    hold([ann, bob, acme.request()])
    settle([used(ann, UsageCounts(60, 0, 40))])

    quota = set_quota(admin(acme), QuotaWanted(QuotaScope.END_USER, QuotaMetric.TOKENS, DAY, 150))

    assert standing(acme, quota.quota_id) == [("ann", 100, 0), ("bob", 0, 100)]
    assert refusals([for_user(acme, "ann"), for_user(acme, "eve")]) == [EXCEEDED, None]


def test_quotas_set_and_lifted_in_the_middle_of_traffic_count_everything_once(
    django_database: object,
) -> None:
    tenant = make_tenant(credit_pico=10**9)
    stop = threading.Event()

    def traffic() -> int:
        done = 0
        while not stop.is_set():
            requests = [replace(tenant.request(), end_user=name) for name in ("ann", "bob")]
            assert refusals(hold(requests)) == [None, None]
            settle([used(requests[0], UsageCounts(30, 20, 10))])
            (void if done % 2 else lambda _: None)([requests[1].request_id])
            done += 1
        return done

    def setting() -> int:
        actor = admin(tenant)
        wanted = replace(TOKENS_A_DAY, limit_amount=10**9)
        try:
            for round_ in range(12):
                default = QuotaWanted(QuotaScope.END_USER, QuotaMetric.REQUESTS, MONTH, 10**9)
                set_quota(actor, replace(wanted, counts_cached=bool(round_ % 2)))
                settle([used(tenant.held(), UsageCounts(60, 0, 40)) for _ in range(5)])
                quota = set_quota(actor, replace(default, end_user="ann" if round_ % 3 else ""))
                settle([used(tenant.held(), UsageCounts(60, 0, 40)) for _ in range(5)])
                if round_ % 2:
                    lift_quota(actor, quota.quota_id)
        finally:
            stop.set()
        return 0

    done = at_once([traffic, traffic, traffic, setting])

    assert sum(done) > 0
    assert reconcile() == []


def test_a_changed_limit_binds_the_next_request_and_keeps_the_count(acme: Tenant) -> None:
    first = set_quota(admin(acme), TOKENS_A_DAY)
    acme.held()
    acme.held()
    assert refusals(hold([acme.request()])) == [EXCEEDED]

    second = set_quota(admin(acme), replace(TOKENS_A_DAY, limit_amount=300))

    assert second.quota_id == first.quota_id
    assert refusals(hold([acme.request(), acme.request()])) == [None, EXCEEDED]
    assert standing(acme, first.quota_id) == [("", 0, 300)]


def test_a_soft_quota_refuses_nothing_and_tells_of_each_threshold_once(acme: Tenant) -> None:
    boss = colleague(acme.organization_id, "a@acme.example")
    set_quota(
        admin(acme), replace(TOKENS_A_DAY, limit_amount=200, is_hard=False, recipients=(boss,))
    )
    for tokens in (40, 60, 10, 100, 100):
        settle([used(acme.held(), UsageCounts(tokens, 0, 0))])

    assert announced(acme) == [(50, "100"), (80, "210"), (100, "210")]
    [(data,)] = rows(
        "SELECT data - 'policy_id' - 'window_start' - 'resets_at' FROM tenants_outbox_event"
        " WHERE organization_id = %s AND data ->> 'threshold_percent' = '50'",
        acme.organization_id,
    )
    assert '"recipients": ["a@acme.example"]' in data
    assert '"limit": "200"' in data and '"hard": false' in data


def test_the_recipients_of_a_quota_get_a_mail_while_they_are_members(acme: Tenant) -> None:
    here, gone = (colleague(acme.organization_id, f"{name}@acme.example") for name in "ab")
    alert = replace(TOKENS_A_DAY, limit_amount=100, is_hard=False, recipients=(here.upper(), gone))
    set_quota(admin(acme), alert)
    Membership.objects.using("housekeeper").filter(
        organization_id=acme.organization_id, user__email=gone
    ).delete()
    settle([used(acme.held(), UsageCounts(50, 0, 0))])

    assert mailed(acme) == [here]


def mailed(tenant: Tenant) -> list[str]:
    """Whom the tenant's events are mailed to, once they are fanned out."""
    while fan_out():
        pass
    found = rows(
        "SELECT to_address FROM tenants_mail WHERE organization_id = %s ORDER BY 1",
        tenant.organization_id,
    )
    return [address for (address,) in found]


def test_a_stranger_is_no_recipient(acme: Tenant, globex: Tenant) -> None:
    theirs = colleague(globex.organization_id, "boss@globex.example")
    with pytest.raises(QuotaInvalid) as caught:
        set_quota(admin(acme), replace(TOKENS_A_DAY, recipients=(theirs,)))

    assert caught.value.param == "recipients"
    assert quotas(admin(acme)) == []


def test_names_that_a_client_makes_up_fill_nobodys_mailbox(
    acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    boss = colleague(acme.organization_id, "a@acme.example")
    each = QuotaWanted(QuotaScope.END_USER, QuotaMetric.REQUESTS, DAY, 1, is_hard=False)
    set_quota(admin(acme), replace(each, recipients=(boss,)))
    requests = [replace(acme.request(1, 1), end_user=f"user {i}") for i in range(110)]
    hold(requests)
    settle([used(request, UsageCounts(1, 0, 1)) for request in requests[:10]])
    at_once(
        [partial(settle, [used(one, UsageCounts(1, 0, 1))]) for one in requests[10:20]],
    )
    settle([used(request, UsageCounts(1, 0, 1)) for request in requests[20:]])

    assert mailed(acme) == [boss] * 3
    assert len(announced(acme)) == 3 * 100


def test_settles_at_once_tell_of_a_threshold_once(acme: Tenant) -> None:
    set_quota(admin(acme), replace(TOKENS_A_DAY, limit_amount=1_000))
    requests = [acme.held() for _ in range(8)]

    at_once([partial(settle, [used(one, UsageCounts(60, 0, 40))]) for one in requests])

    assert [percent for percent, _ in announced(acme)] == [50, 80]


def test_a_changed_limit_has_thresholds_of_its_own(acme: Tenant) -> None:
    set_quota(admin(acme), replace(TOKENS_A_DAY, limit_amount=200))
    settle([used(acme.held(), UsageCounts(60, 0, 40))])
    set_quota(admin(acme), replace(TOKENS_A_DAY, limit_amount=1_000))
    for _ in range(4):
        settle([used(acme.held(), UsageCounts(60, 0, 40))])

    assert announced(acme) == [(50, "100"), (50, "500")]


def test_a_list_takes_what_fits_of_each_quota_in_the_order_asked(acme: Tenant) -> None:
    set_quota(admin(acme), TOKENS_A_DAY)
    set_quota(admin(acme), QuotaWanted(QuotaScope.END_USER, QuotaMetric.REQUESTS, DAY, 1))
    asked = [("ann", 60), ("ann", 60), ("", 200), ("bob", 60), ("eve", 60), ("", 30)]
    requests = [replace(acme.request(tokens, 40), end_user=name) for name, tokens in asked]

    outcomes = hold(requests)

    assert refusals(outcomes) == [None, EXCEEDED, EXCEEDED, None, EXCEEDED, EXCEEDED]
    assert [one.quota.scope.value if one.quota else "" for one in outcomes] == [
        "",
        "end_user",
        "organization",
        "",
        "organization",
        "organization",
    ]
    assert acme.balance().held_pico == 200
    assert reconcile() == []


def test_a_lack_of_money_burns_no_quota(django_database: object) -> None:
    poor = make_tenant(credit_pico=250)
    quota = set_quota(admin(poor), replace(TOKENS_A_DAY, limit_amount=10**6))

    outcomes = at_once([lambda: hold([poor.request(), poor.request()]) for _ in range(10)])

    assert sum(refusals(each).count(None) for each in outcomes) == 2
    assert standing(poor, quota.quota_id) == [("", 0, 200)]
    assert reconcile() == []


def test_tags_and_end_user_reach_the_usage_event(acme: Tenant) -> None:
    rows_changed = "UPDATE tenants_organization SET cost_tags = '{team,feature}' WHERE id = %s"
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(rows_changed, [acme.organization_id])
    request = replace(acme.request(), end_user="ann", tags={"team": "red", "secret": "x"})
    hold([request])
    settle([used(request, UsageCounts(60, 0, 40))])

    with tenant_scope(acme.organization_id):
        event = UsageEvent.objects.get(request_id=request.request_id)
        held = Hold.objects.get(id=request.request_id)
    assert (event.end_user, event.tags) == (held.end_user, held.tags) == ("ann", {"team": "red"})


def test_quotas_are_set_by_those_who_may_and_say_by_whom(acme: Tenant) -> None:
    actor = admin(acme)
    quota = set_quota(actor, TOKENS_A_DAY)

    with pytest.raises(PermissionDenied):
        set_quota(admin(acme, Permission.LIMITS_READ), TOKENS_A_DAY)
    with pytest.raises(PermissionDenied):
        lift_quota(admin(acme, Permission.LIMITS_READ), quota.quota_id)
    with pytest.raises(PermissionDenied):
        quotas(admin(acme, Permission.LIMITS_WRITE))
    [told] = quotas(admin(acme, Permission.LIMITS_READ))
    assert (told.set_by_kind, told.set_by_id) == ("user", actor.actor_id)
    assert told.wanted == TOKENS_A_DAY
    audited = rows(
        "SELECT action, target_id FROM tenants_audit_log WHERE organization_id = %s"
        " AND target_kind = 'quota'",
        acme.organization_id,
    )
    assert audited == [("limit.changed", str(quota.quota_id))]


def test_another_tenants_quotas_and_projects_are_not_there(acme: Tenant, globex: Tenant) -> None:
    quota = set_quota(admin(acme), TOKENS_A_DAY)

    assert quotas(admin(globex)) == []
    with pytest.raises(QuotaNotFound):
        lift_quota(admin(globex), quota.quota_id)
    for scope, scope_id in (
        (QuotaScope.PROJECT, acme.project_id),
        (QuotaScope.KEY, acme.key_id),
        (QuotaScope.PROJECT, uuid7()),
    ):
        with pytest.raises(QuotaNotFound):
            set_quota(admin(globex), QuotaWanted(scope, QuotaMetric.SPEND, DAY, 1, scope_id))
    assert refusals(hold([globex.request()])) == [None]


@pytest.mark.parametrize(
    ("wanted", "param"),
    [
        (replace(TOKENS_A_DAY, limit_amount=-1), "limit"),
        (replace(TOKENS_A_DAY, limit_amount=10**31), "limit"),
        (replace(TOKENS_A_DAY, scope_id=UUID(int=1)), "scope_id"),
        (replace(TOKENS_A_DAY, scope=QuotaScope.KEY), "scope_id"),
        (replace(TOKENS_A_DAY, end_user="ann"), "end_user"),
        (replace(TOKENS_A_DAY, scope=QuotaScope.END_USER, end_user="x" * 129), "end_user"),
        (replace(TOKENS_A_DAY, recipients=("a@b.example",) * 11), "recipients"),
        (replace(TOKENS_A_DAY, subject_prefix="see https://evil"), "subject_prefix"),
        (replace(TOKENS_A_DAY, subject_prefix="see evil.example"), "subject_prefix"),
        (replace(TOKENS_A_DAY, subject_prefix="a\nBcc: b"), "subject_prefix"),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused(
    acme: Tenant, wanted: QuotaWanted, param: str
) -> None:
    with pytest.raises(QuotaInvalid) as caught:
        set_quota(admin(acme), wanted)

    assert caught.value.param == param
    assert quotas(admin(acme)) == []


def test_a_soft_quota_changes_its_amount_and_stays_itself(acme: Tenant, globex: Tenant) -> None:
    alert = replace(TOKENS_A_DAY, is_hard=False)
    first = set_quota(admin(acme), alert)
    second = set_quota(admin(acme), replace(alert, limit_amount=500))

    changed = change_quota(admin(acme), first.quota_id, replace(alert, limit_amount=9))

    assert (changed.quota_id, changed.wanted.limit_amount) == (first.quota_id, 9)
    with pytest.raises(QuotaInvalid):
        change_quota(admin(acme), second.quota_id, replace(alert, limit_amount=9))
    with pytest.raises(QuotaNotFound):
        change_quota(admin(globex), first.quota_id, alert)
    with pytest.raises(QuotaNotFound):
        change_quota(admin(acme), first.quota_id, replace(alert, is_hard=True))
    assert sorted(one.wanted.limit_amount for one in quotas(admin(acme))) == [9, 500]


def wanted_of(found: Sequence[Quota]) -> list[QuotaWanted]:
    return [one.wanted for one in found]


def test_quotas_are_replaced_all_together_or_not_at_all(acme: Tenant, globex: Tenant) -> None:
    monthly = replace(TOKENS_A_DAY, period=MONTH)
    alerts = [replace(monthly, is_hard=False, limit_amount=amount) for amount in (10, 20)]
    replace_quotas(admin(acme), [TOKENS_A_DAY, monthly])
    before = quotas(admin(acme))
    foreign = QuotaWanted(QuotaScope.KEY, QuotaMetric.SPEND, DAY, 1, globex.key_id)

    with pytest.raises(QuotaNotFound):
        replace_quotas(admin(acme), [*alerts, foreign])
    with pytest.raises(QuotaInvalid):
        replace_quotas(admin(acme), [monthly, replace(monthly, limit_amount=5)])
    assert quotas(admin(acme)) == before

    after = replace_quotas(admin(acme), [replace(monthly, limit_amount=5), *alerts])

    assert wanted_of(after) == [replace(monthly, limit_amount=5), *alerts]
    assert after[0].quota_id == before[1].quota_id
    assert replace_quotas(admin(acme), []) == []


def test_an_organization_has_a_bounded_number_of_quotas(
    acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("billing.quotas.QUOTAS_MAX", 2)
    set_quota(admin(acme), TOKENS_A_DAY)
    set_quota(admin(acme), replace(TOKENS_A_DAY, period=MONTH))
    set_quota(admin(acme), replace(TOKENS_A_DAY, limit_amount=1))

    with pytest.raises(QuotaInvalid):
        set_quota(admin(acme), replace(TOKENS_A_DAY, metric=QuotaMetric.SPEND))

    assert len(quotas(admin(acme))) == 2


@pytest.mark.parametrize("asserts", ["on", "off"])
@pytest.mark.parametrize(
    "call",
    [
        (
            "billing_set_quota(%(tenant)s, NULL, 'organization', NULL, '', 'spend', 'day', 0,"
            " true, true, '{}', '', 'user', NULL, 100)"
        ),
        "billing_lift_quota(%(tenant)s, %(quota)s)",
    ],
)
def test_the_app_touches_no_quota_outside_its_tenants_scope(
    acme: Tenant, globex: Tenant, call: str, asserts: str
) -> None:
    standing = set_quota(admin(globex), TOKENS_A_DAY)

    def trespass() -> None:
        with (
            tenant_scope(acme.organization_id),
            connections["default"].cursor() as cursor,
        ):
            cursor.execute(f"SET LOCAL plpgsql.check_asserts = {asserts}")
            cursor.execute(
                f"SELECT {call}", {"tenant": globex.organization_id, "quota": standing.quota_id}
            )

    with pytest.raises(ProgrammingError, match="inside its tenant's scope"):
        trespass()
    [left] = quotas(admin(globex))
    assert (left.quota_id, left.wanted) == (standing.quota_id, standing.wanted)


def test_a_counter_that_is_wrong_is_found(acme: Tenant) -> None:
    quota = set_quota(admin(acme), TOKENS_A_DAY)
    acme.held()
    with tenant_scope(acme.organization_id, "owner"):
        QuotaCounter.objects.using("owner").filter(policy=quota.quota_id).update(held_amount=1)
    try:
        assert any("quota counter" in finding for finding in reconcile())
    finally:
        with tenant_scope(acme.organization_id, "owner"):
            QuotaCounter.objects.using("owner").filter(policy=quota.quota_id).update(
                held_amount=100
            )


def test_a_quota_with_nothing_used_yet_shows_no_subject(acme: Tenant) -> None:
    quota = set_quota(admin(acme), TOKENS_A_DAY)
    assert quota.subjects == ()
    acme.held()
    assert quotas(admin(acme))[0].subjects == (QuotaSubject("", 0, 100),)


def test_reconciliation_finds_counters_that_are_not_their_holds(acme: Tenant) -> None:
    [quota] = replace_quotas(admin(acme), [TOKENS_A_DAY])
    settle([used(acme.held(), UsageCounts(5, 0, 2))])
    open_ = acme.held()

    def put(used_amount: int, held_amount: int, days: int = 0) -> None:
        """Have the counter say this, of its window or of one so many days later."""
        with tenant_scope(acme.organization_id, "owner"):
            QuotaCounter.objects.using("owner").filter(policy=quota.quota_id).update(
                used_amount=used_amount,
                held_amount=held_amount,
                window_start=quota.window_start + timedelta(days=days),
            )

    for said, expected in (
        ((8, 100, 0), "8, 100, 7, 100"),
        ((7, 200, 0), "7, 200, 7, 100"),
        ((7, 100, 3), "7, 100, 0, 0"),
    ):
        put(*said)
        [finding] = reconcile()
        assert finding.startswith("a quota counter is not the sum of its window's holds")
        assert finding.endswith(expected)
    put(0, 0, 3)
    assert reconcile() == []
    put(7, 100)
    void([open_.request_id])
    assert reconcile() == []
