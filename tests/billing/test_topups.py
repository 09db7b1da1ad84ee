"""Top-ups: a payment becomes credit once, whoever says so and how often, and goes back the same."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.db import ProgrammingError, connections

from billing.contracts import (
    PICO,
    HoldRefusal,
    RefundTooLarge,
    TopUp,
    TopUpConflict,
    TopUpNotFound,
    TopUpState,
    TopUpUnavailable,
    UsageCounts,
)
from billing.credit import recharges
from billing.facade import (
    begin_recharge,
    begin_topup,
    complete_topup,
    credit_grants,
    fail_topup,
    hold,
    note_payment,
    recharge_due,
    recharge_settings,
    reconcile,
    refund_topup,
    save_billing_settings,
    save_recharge,
    settle,
    tend_credit,
    top_up,
    top_ups,
    use_payment_provider,
    void,
    watch_balances,
)
from tenants.contracts import Actor, ActorKind, Permission, PermissionDenied
from tenants.facade import tenant_scope
from tests.billing.cast import Tenant, at_once, make_tenant, used
from tests.billing.till import Till, open_till

TWENTY = 20 * PICO
CENT = PICO // 100


@pytest.fixture
def till() -> Iterator[Till]:
    """The provider of this test."""
    with open_till() as till:
        yield till


@pytest.fixture
def poor(django_database: object) -> Tenant:
    """A tenant without any credit."""
    return make_tenant(credit_pico=0)


def actor(tenant: Tenant, *permissions: Permission) -> Actor:
    """Somebody of the tenant's who may pay."""
    allowed = frozenset(permissions or Permission)
    return Actor(ActorKind.USER, uuid4(), tenant.organization_id, allowed)


def begun(tenant: Tenant, key: str = "first", amount_pico: int = TWENTY) -> TopUp:
    """A top-up that waits for its payment."""
    return begin_topup(actor(tenant), amount_pico, key).top_up


def paid(tenant: Tenant, key: str = "first") -> str:
    """A top-up of twenty that was paid; the payment's reference."""
    reference = f"pay_{begun(tenant, key).top_up_id.hex}"
    complete_topup(reference, TWENTY)
    return reference


def spend(tenant: Tenant, amount_pico: int) -> None:
    """Use tokens of a cent each that cost this much, or of a pico-unit."""
    price = CENT if amount_pico % CENT == 0 else 1
    tokens = amount_pico // price
    request = tenant.with_prices(price, price, price).held(tokens, 0)
    settle([used(request, UsageCounts(tokens, 0, 0))])


def legs(tenant: Tenant) -> dict[str, int]:
    """The sum of each of the tenant's ledger accounts that has any."""
    with tenant_scope(tenant.organization_id), connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT a.kind, sum(l.amount_pico) FROM billing_ledger_leg l"
            " JOIN billing_ledger_account a ON a.id = l.account_id GROUP BY 1"
        )
        return {str(kind): int(amount) for kind, amount in cursor.fetchall()}


def events(tenant: Tenant, kind: str) -> int:
    """How many events of a kind the tenant was told."""
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM tenants_outbox_event WHERE organization_id = %s AND kind = %s",
            [tenant.organization_id, kind],
        )
        row = cursor.fetchone()
    return int(row[0])


def test_fifty_messages_of_one_payment_credit_it_once(poor: Tenant, till: Till) -> None:
    reference = f"pay_{begun(poor).top_up_id.hex}"

    told = at_once([lambda: complete_topup(reference, TWENTY) for _ in range(50)])

    assert told.count(True) == 1
    assert legs(poor) == {"credit": TWENTY, "cash": -TWENTY}
    assert poor.balance().posted_pico == TWENTY
    assert events(poor, "topup.succeeded") == 1
    assert [grant.category for grant in credit_grants(poor.organization_id)] == ["paid"]
    assert reconcile() == []


def test_fifty_wishes_under_one_key_are_one_top_up(poor: Tenant, till: Till) -> None:
    started = at_once([lambda: begun(poor) for _ in range(50)])

    assert len({one.top_up_id for one in started}) == 1
    assert len(top_ups(poor.organization_id)) == 1


def test_a_key_is_of_one_amount(poor: Tenant, till: Till) -> None:
    begun(poor)

    with pytest.raises(TopUpConflict):
        begun(poor, amount_pico=2 * TWENTY)
    assert [one.amount_pico for one in top_ups(poor.organization_id)] == [TWENTY]


@pytest.mark.parametrize("amount_pico", [0, -PICO, PICO - 1, PICO + 1, 10**7 * PICO])
def test_a_top_up_is_of_whole_cents_within_bounds(
    poor: Tenant, till: Till, amount_pico: int
) -> None:
    with pytest.raises(ValueError, match="cents"):
        begun(poor, amount_pico=amount_pico)
    assert top_ups(poor.organization_id) == []


def test_only_who_may_pay_begins_one(poor: Tenant, till: Till) -> None:
    with pytest.raises(PermissionDenied):
        begin_topup(actor(poor, Permission.BILLING_READ), TWENTY, "first")
    assert till.begun == []


def test_without_a_provider_nothing_begins(poor: Tenant, till: Till) -> None:
    use_payment_provider(None)

    with pytest.raises(TopUpUnavailable):
        begun(poor)
    assert top_ups(poor.organization_id) == []


def test_another_sum_than_asked_is_not_credited(poor: Tenant, till: Till) -> None:
    reference = f"pay_{begun(poor).top_up_id.hex}"

    with pytest.raises(TopUpConflict):
        complete_topup(reference, TWENTY - 1)
    assert poor.balance().posted_pico == 0


def test_a_message_that_outruns_our_note_finds_its_top_up_by_id(poor: Tenant, till: Till) -> None:
    with tenant_scope(poor.organization_id), connections["default"].cursor() as cursor:
        top_up_id = uuid4()
        cursor.execute(
            "INSERT INTO billing_top_up (id, organization_id, amount_pico, currency,"
            " idempotency_key) VALUES (%s, %s, %s, 'USD', 'early')",
            [top_up_id, poor.organization_id, TWENTY],
        )

    assert complete_topup("pay_early", TWENTY, top_up_id)
    note_payment(poor.organization_id, top_up_id, "pay_early")

    assert top_up(poor.organization_id, top_up_id).payment_reference == "pay_early"
    with pytest.raises(TopUpConflict):
        note_payment(poor.organization_id, top_up_id, "pay_other")


def test_a_payment_of_nobodys_is_not_credited(poor: Tenant, globex: Tenant, till: Till) -> None:
    mine = begun(poor)

    with pytest.raises(TopUpNotFound):
        complete_topup("pay_unknown", TWENTY)
    with pytest.raises(TopUpNotFound):
        note_payment(globex.organization_id, mine.top_up_id, "pay_stolen")
    with pytest.raises(TopUpNotFound):
        top_up(globex.organization_id, mine.top_up_id)


def test_a_payment_that_fails_first_may_succeed_later_but_not_the_other_way(
    poor: Tenant, till: Till
) -> None:
    started = begun(poor)
    reference = f"pay_{started.top_up_id.hex}"

    assert fail_topup(reference, "card declined")
    assert top_up(poor.organization_id, started.top_up_id).failure == "card declined"
    assert complete_topup(reference, TWENTY)
    assert not fail_topup(reference, "late news")

    assert top_up(poor.organization_id, started.top_up_id).state is TopUpState.SUCCEEDED
    assert reconcile() == []


def test_fifty_refunds_under_one_key_give_back_once(poor: Tenant, till: Till) -> None:
    reference = paid(poor)

    told = at_once([lambda: refund_topup(reference, 5 * PICO, "back") for _ in range(50)])

    assert told.count(True) == 1
    assert legs(poor) == {"credit": 15 * PICO, "cash": -15 * PICO}
    assert [one.refunded_pico for one in top_ups(poor.organization_id)] == [5 * PICO]
    assert reconcile() == []


def test_what_was_spent_is_not_refunded(poor: Tenant, till: Till) -> None:
    reference = paid(poor)
    spend(poor, 15 * PICO)

    with pytest.raises(RefundTooLarge):
        refund_topup(reference, 6 * PICO, "back")
    refund_topup(reference, 5 * PICO, "back")

    assert poor.balance().posted_pico == 0
    assert reconcile() == []


def test_what_the_provider_paid_back_all_the_same_is_written_off(poor: Tenant, till: Till) -> None:
    reference = paid(poor)
    spend(poor, 15 * PICO)

    refund_topup(reference, TWENTY, "dispute", is_done=True)

    assert legs(poor) == {"credit": 0, "cash": 0, "revenue": 15 * PICO, "write_off": -15 * PICO}
    assert [one.state for one in top_ups(poor.organization_id)] == [TopUpState.REFUNDED]
    assert reconcile() == []


def test_what_went_back_while_holds_were_open_leaves_when_they_close(
    poor: Tenant, till: Till
) -> None:
    reference = paid(poor)
    first, second = (poor.held(10 * PICO, 0) for _ in range(2))

    refund_topup(reference, TWENTY, "dispute", is_done=True)
    assert poor.balance().posted_pico == TWENTY
    assert reconcile() == []

    settle([used(first, UsageCounts(1, 0, 0))])
    [refused] = hold([poor.request(1, 0)])
    assert refused.refusal is HoldRefusal.INSUFFICIENT_QUOTA
    assert tend_credit() >= 1
    assert poor.balance().posted_pico == 10 * PICO

    settle([used(second, UsageCounts(1, 0, 0))])
    assert tend_credit() >= 1
    assert legs(poor) == {"credit": 0, "cash": 0, "revenue": 2, "write_off": -2}
    assert [one.remaining_pico for one in credit_grants(poor.organization_id)] == [0]
    assert reconcile() == []


def test_a_payment_that_goes_back_in_parts_takes_no_other_credit(poor: Tenant, till: Till) -> None:
    reference = paid(poor)
    request = poor.held(TWENTY, 0)
    for part in range(2):
        refund_topup(reference, 10 * PICO, f"dispute {part}", is_done=True)
    paid(poor, "second")
    assert hold([poor.request(1, 0)])[0].refusal is HoldRefusal.INSUFFICIENT_QUOTA

    void([request.request_id])
    poor.held(TWENTY, 0)
    assert hold([poor.request(1, 0)])[0].refusal is HoldRefusal.INSUFFICIENT_QUOTA
    tend_credit()

    assert poor.balance().posted_pico == TWENTY
    assert legs(poor) == {"credit": TWENTY, "cash": -TWENTY, "write_off": 0}
    assert reconcile() == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE billing_top_up SET state = 'succeeded'",
        "UPDATE billing_top_up SET amount_pico = 1",
        "SELECT billing_complete_top_up('', NULL, 1)",
        "SELECT billing_refund_top_up('', NULL, 1, '', true)",
        "UPDATE billing_credit_grant SET remaining_pico = amount_pico",
        "UPDATE billing_settings SET tax_ppm = 0",
    ],
)
def test_the_app_makes_no_money(poor: Tenant, till: Till, statement: str) -> None:
    begun(poor)

    with (
        pytest.raises(ProgrammingError, match="permission denied"),
        tenant_scope(poor.organization_id),
        connections["default"].cursor() as cursor,
    ):
        cursor.execute(statement)


def recharging(tenant: Tenant, month_max_pico: int = 100 * PICO) -> None:
    """Buy twenty whenever there is less than five."""
    save_recharge(
        actor(tenant),
        is_enabled=True,
        threshold_pico=5 * PICO,
        amount_pico=TWENTY,
        month_max_pico=month_max_pico,
    )


def test_fifty_looks_begin_one_recharge(poor: Tenant, till: Till) -> None:
    recharging(poor)

    begun_ = at_once([lambda: begin_recharge(poor.organization_id) for _ in range(50)])

    assert len([one for one in begun_ if one is not None]) == 1
    [recharge] = top_ups(poor.organization_id)
    assert (recharge.is_recharge, recharge.amount_pico) == (True, TWENTY)
    assert begin_recharge(poor.organization_id) is None


def test_a_failed_recharge_waits_longer_each_time_and_is_told(poor: Tenant, till: Till) -> None:
    recharging(poor)
    waits = []
    for _ in range(2):
        recharge = begin_recharge(poor.organization_id)
        assert recharge is not None
        fail_topup(f"pay_{recharge.top_up_id}", "declined", recharge.top_up_id)
        assert begin_recharge(poor.organization_id) is None
        settings = recharge_settings(poor.organization_id)
        failed_at = top_up(poor.organization_id, recharge.top_up_id).completed_at
        assert settings.not_before_at is not None
        assert failed_at is not None
        waits.append((settings.not_before_at - failed_at).total_seconds())
        forget_the_pause(poor)

    assert waits == [3600, 7200]
    assert events(poor, "recharge.failed") == 2


def forget_the_pause(tenant: Tenant) -> None:
    """As if the time had passed."""
    with tenant_scope(tenant.organization_id, "owner"), connections["owner"].cursor() as cursor:
        cursor.execute("UPDATE billing_settings SET recharge_not_before_at = now()")


def test_a_recharge_stops_at_the_months_maximum(poor: Tenant, till: Till) -> None:
    recharging(poor, month_max_pico=2 * TWENTY)
    for _ in range(2):
        recharge = begin_recharge(poor.organization_id)
        assert recharge is not None
        complete_topup(f"pay_{recharge.top_up_id}", TWENTY, recharge.top_up_id)
        spend(poor, 18 * PICO)

    assert poor.balance().posted_pico == 4 * PICO
    assert begin_recharge(poor.organization_id) is None


def test_a_balance_above_the_threshold_is_not_recharged(acme: Tenant, till: Till) -> None:
    recharging(acme)

    assert begin_recharge(acme.organization_id) is None
    spend(acme, 1)
    assert begin_recharge(acme.organization_id) is not None


def test_the_task_charges_what_it_begins(poor: Tenant, till: Till) -> None:
    recharging(poor)

    recharge_due()

    [mine] = top_ups(poor.organization_id)
    assert till.charged.count(mine.top_up_id) == 1


def test_a_time_zone_nobody_knows_keeps_no_recharge_waiting(poor: Tenant, till: Till) -> None:
    odd = make_tenant("odd", credit_pico=0)
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "UPDATE tenants_organization SET time_zone = 'Mars/Olympus' WHERE id = %s",
            [odd.organization_id],
        )
    for tenant in (odd, poor):
        recharging(tenant)

    recharge_due()

    assert [len(top_ups(one.organization_id)) for one in (odd, poor)] == [1, 1]


def test_who_has_bought_the_months_maximum_keeps_nobody_waiting(
    poor: Tenant, till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recharges, "RECHARGES_MAX", 1)
    full = make_tenant("full", credit_pico=0)
    recharging(full, month_max_pico=TWENTY)
    bought = begin_recharge(full.organization_id)
    assert bought is not None
    complete_topup(f"pay_{bought.top_up_id.hex}", TWENTY, bought.top_up_id)
    spend(full, 18 * PICO)
    recharging(poor)

    recharge_due()

    assert len(top_ups(poor.organization_id)) == 1
    assert len(top_ups(full.organization_id)) == 1


def test_a_low_balance_is_told_once_for_each_fall(acme: Tenant, till: Till) -> None:
    save_billing_settings(actor(acme), 5 * PICO, "")
    told = []
    for _ in range(2):
        watch_balances()
        told.append(events(acme, "balance.low"))
    spend(acme, PICO)
    for _ in range(3):
        watch_balances()
        told.append(events(acme, "balance.low"))
    paid(acme)
    watch_balances()
    spend(acme, TWENTY)
    watch_balances()
    told.append(events(acme, "balance.low"))

    assert told == [0, 0, 1, 1, 1, 2]
