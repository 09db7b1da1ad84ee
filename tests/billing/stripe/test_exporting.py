"""What closed hours used reaches Stripe's meters once, in its own time; show tenants' never."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import stripe
from django.db import transaction

from billing.contracts import StripeExportReport, UsageCounts
from billing.facade import keep_out_of_stripe, reconcile, roll_up, settle
from billing.stripe_sync.comparing import compare
from billing.stripe_sync.customers import ensure_customer
from billing.stripe_sync.exports import MeterKey, export
from billing.stripe_sync.invariants import TOLD_MORE_THAN_USED
from tests.billing.cast import Tenant, make_tenant, used
from tests.billing.stripe.cast import ask
from tests.billing.stripe.fake_process import Fake

HOUR = timedelta(hours=1)
DAY_S = 24 * 3600
SERVED = "served"


@pytest.fixture
def user(fake: Fake) -> Tenant:
    """acme, who uses up what it has."""
    return make_tenant("acme")


def use(tenant: Tenant, uncached: int = 50, cached: int = 10, output: int = 40) -> None:
    """One request, added up."""
    settle([used(tenant.held(), UsageCounts(uncached, cached, output))])
    roll_up()


def after_the_hour(hours: int = 1) -> datetime:
    """A moment when what is used now is of a closed hour."""
    return datetime.now(UTC) + hours * HOUR


def rows(tenant: Tenant) -> list[tuple[Any, ...]]:
    """What is exported for the tenant: class, sequence, tokens, state."""
    return ask(
        "SELECT token_class, sequence, tokens, state FROM billing_stripe_export"
        " WHERE organization_id = %s ORDER BY token_class, sequence",
        tenant.organization_id,
    )


def metered(fake: Fake, tenant: Tenant, token_class: str) -> int:
    """Stripe's sum of the tenant's tokens of a class, over the last two days."""
    client = fake.client()
    [(customer,)] = ask(
        "SELECT customer_id FROM billing_stripe_account WHERE organization_id = %s",
        tenant.organization_id,
    )
    name = MeterKey(SERVED, token_class).event_name
    [meter] = [
        each.id
        for each in client.v1.billing.meters.list({"limit": 100}).auto_paging_iter()
        if each.event_name == name
    ]
    day = int(datetime.now(UTC).timestamp()) // DAY_S * DAY_S
    sums = client.v1.billing.meters.event_summaries.list(
        meter, {"customer": customer, "start_time": day - DAY_S, "end_time": day + DAY_S}
    )
    return sum(int(each.aggregated_value) for each in sums.data)


def all_sent(now: datetime) -> StripeExportReport:
    """Runs until nothing waits that could be sent."""
    report = export(now)
    while report.sent:
        report = export(now)
    return report


def test_closed_hours_are_exported_once_by_class(user: Tenant, fake: Fake) -> None:
    use(user)
    export(datetime.now(UTC))
    assert rows(user) == [], "the hour is not over"

    all_sent(after_the_hour())
    all_sent(after_the_hour())

    assert rows(user) == [
        ("cached_input", 1, 10, "delivered"),
        ("input", 1, 50, "delivered"),
        ("output", 1, 40, "delivered"),
    ]
    found = {name: metered(fake, user, name) for name in ("input", "cached_input", "output")}
    assert found == {"input": 50, "cached_input": 10, "output": 40}


def test_an_event_has_the_hours_own_time_and_the_rows_id(user: Tenant, fake: Fake) -> None:
    use(user, 50, 0, 0)
    all_sent(after_the_hour())

    [(row_id, hour)] = ask(
        "SELECT id, hour FROM billing_stripe_export WHERE organization_id = %s",
        user.organization_id,
    )
    assert hour == datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    name = MeterKey(SERVED, "input").event_name
    with pytest.raises(stripe.InvalidRequestError, match=f"identifier {row_id}"):
        fake.client().v1.billing.meter_events.create(
            {
                "event_name": name,
                "identifier": str(row_id),
                "payload": {"stripe_customer_id": customer_of(user), "value": "1"},
            }
        )


def customer_of(tenant: Tenant) -> str:
    """Who the tenant is to Stripe."""
    [(customer,)] = ask(
        "SELECT customer_id FROM billing_stripe_account WHERE organization_id = %s",
        tenant.organization_id,
    )
    return str(customer)


def test_what_an_hour_gains_later_is_a_row_more(user: Tenant, fake: Fake) -> None:
    use(user, 50, 0, 0)
    all_sent(after_the_hour())
    use(user, 7, 0, 0)
    all_sent(after_the_hour())

    assert rows(user) == [("input", 1, 50, "delivered"), ("input", 2, 7, "delivered")]
    assert [each for each in reconcile() if str(user.organization_id) in each] == []
    assert metered(fake, user, "input") == 57


def test_a_lost_answer_is_delivered_by_its_duplicate(user: Tenant, fake: Fake) -> None:
    all_sent(after_the_hour())
    use(user, 50, 0, 0)
    fake.control(
        "troubles", method="POST", path="/v1/billing/meter_events", lost=True, status=503, count=2
    )
    report = export(after_the_hour())
    assert report.pending >= 1
    assert rows(user) == [("input", 1, 50, "pending")]

    all_sent(after_the_hour())

    assert rows(user) == [("input", 1, 50, "delivered")]
    assert metered(fake, user, "input") == 50


def test_an_identifier_that_stripe_forgot_is_not_counted_again(user: Tenant, fake: Fake) -> None:
    all_sent(after_the_hour())
    use(user, 50, 0, 0)
    fake.control(
        "troubles", method="POST", path="/v1/billing/meter_events", lost=True, status=503, count=2
    )
    export(after_the_hour())
    fake.control("clock", advance_s=2 * DAY_S)

    all_sent(after_the_hour(49))

    assert rows(user) == [("input", 1, 50, "delivered")]
    assert metered(fake, user, "input") == 50


def test_stripe_away_for_a_day_is_said_and_made_good(
    user: Tenant, fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    all_sent(after_the_hour())
    use(user, 50, 0, 0)
    fake.control("troubles", method="GET", path="/v1/billing/meters", status=503, count=1_000_000)
    assert export(after_the_hour()).late == 0
    late = export(after_the_hour(26))
    assert late.late >= 1
    assert late.oldest_pending_at is not None
    assert "wait for more than a day" in caplog.text

    fake.control("reset")
    all_sent(after_the_hour(26))
    assert rows(user) == [("input", 1, 50, "delivered")]


def test_what_is_too_old_is_refused_and_said(user: Tenant, fake: Fake) -> None:
    use(user, 50, 0, 0)
    fake.control("clock", advance_s=36 * DAY_S)
    before = export(after_the_hour()).refused

    assert rows(user) == [("input", 1, 50, "refused")], "Stripe said so"
    assert before >= 1
    use(user, 7, 0, 0)
    export(after_the_hour(36 * 24), timedelta(days=40))
    assert rows(user) == [("input", 1, 50, "refused"), ("input", 2, 7, "refused")], "we knew"


def test_show_tenants_are_kept_out(user: Tenant, fake: Fake) -> None:
    keep_out_of_stripe(user.organization_id)
    keep_out_of_stripe(user.organization_id)
    use(user)

    all_sent(after_the_hour())

    assert rows(user) == []
    assert customer_of(user) == ""
    assert ensure_customer(user.organization_id, "housekeeper") == customer_of(user) != ""


def test_tenants_are_told_apart(user: Tenant, fake: Fake) -> None:
    globex = make_tenant("globex")
    use(user, 50, 0, 0)
    use(globex, 3, 0, 0)
    all_sent(after_the_hour())

    assert metered(fake, user, "input") == 50
    assert metered(fake, globex, "input") == 3


def test_the_days_comparison_finds_what_differs(user: Tenant, fake: Fake) -> None:
    use(user, 50, 0, 0)
    all_sent(after_the_hour())
    today = datetime.now(UTC).date()
    mine = [
        each for each in compare(today).mismatches if each.organization_id == user.organization_id
    ]
    assert mine == []

    fake.client().v1.billing.meter_events.create(
        {
            "event_name": MeterKey(SERVED, "input").event_name,
            "payload": {"stripe_customer_id": customer_of(user), "value": "5"},
        }
    )

    [found] = [
        each for each in compare(today).mismatches if each.organization_id == user.organization_id
    ]
    assert (found.token_class, found.our_tokens, found.their_tokens) == ("input", 50, 55)


def test_reconciling_sees_an_export_of_more_than_was_used(user: Tenant, fake: Fake) -> None:
    use(user, 50, 0, 0)
    with transaction.atomic("housekeeper"):
        ask(
            "INSERT INTO billing_stripe_export (id, organization_id, hour, model, token_class,"
            " sequence, tokens) VALUES (uuidv7(), %s, date_trunc('hour', now()), %s, 'input', 1,"
            " 51) RETURNING id",
            user.organization_id,
            SERVED,
        )
        found = ask(TOLD_MORE_THAN_USED)
        transaction.set_rollback(True, "housekeeper")

    assert [row[0] for row in found if row[0] == user.organization_id] == [user.organization_id]


@pytest.mark.parametrize("model", ["m", "org/model-7b", "x" * 200])
def test_each_model_and_class_has_a_meter_of_its_own(model: str) -> None:
    names = {
        MeterKey(name, token_class).event_name
        for name in (model, f"{model}2")
        for token_class in ("input", "output", "batch_input", "batch_cached_input")
    }

    assert len(names) == 8
    assert all(len(name) <= 100 for name in names)
