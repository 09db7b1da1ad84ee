"""The month that acme has behind it: in the books like any other, and marked for what it is."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from uuid import UUID, uuid4

import pytest
from django.contrib.auth import get_user_model
from django.db import connections, transaction

from billing import facade as billing
from billing.contracts import InvoiceKind, QuotaMetric, Settled, Settlement, TopUpState
from billing.facade import settle
from billing.stripe_sync.exports import PLAN
from headrace.standalone.demo_history import LARGE_MODEL, write_history
from headrace.standalone.demo_limits import limit_for
from headrace.standalone.demo_traffic import DAY, traffic
from tenants import facade as tenants
from tenants.contracts import Actor, KeyKind, Role
from tests.billing.cast import make_offer
from tests.books import rows

SMALL_MODEL = "small-of-the-demo"
REQUESTS = 1_500
UNTIL = datetime(2026, 11, 30, 11, 30, tzinfo=UTC)
COUNTS = """
    SELECT (SELECT count(*) FROM billing_usage_event WHERE organization_id = %(of)s),
           (SELECT count(*) FROM billing_ledger_tx WHERE organization_id = %(of)s),
           (SELECT count(*) FROM billing_hold WHERE organization_id = %(of)s),
           (SELECT count(*) FROM billing_top_up WHERE organization_id = %(of)s),
           (SELECT count(*) FROM billing_invoice WHERE organization_id = %(of)s),
           (SELECT count(*) FROM billing_quota_policy WHERE organization_id = %(of)s),
           (SELECT count(*) FROM tenants_api_key WHERE organization_id = %(of)s)"""


@dataclass(frozen=True)
class Shown:
    """An organization with a history."""

    organization_id: UUID
    owner_id: UUID
    requests: int

    @property
    def owner(self) -> Actor:
        """Who looks at it."""
        return tenants.actor_for_user(self.owner_id, self.organization_id, has_second_factor=None)

    def counts(self) -> list[tuple[int, ...]]:
        """How many rows it has of what a history is made of."""
        return rows(COUNTS.replace("%(of)s", f"'{self.organization_id}'"))


@pytest.fixture(scope="module")
def shown(django_database: object) -> Shown:
    """Written once for all that look at it."""
    new = without_history()
    written = write_history(new.organization_id, new.owner_id, SMALL_MODEL, requests=REQUESTS)
    return replace(new, requests=written)


def without_history() -> Shown:
    """An organization as the seed leaves it to the history."""
    make_offer(SMALL_MODEL, 50_000, 5_000, 250_000)
    organization = tenants.create_organization(f"shown-{uuid4().hex[:12]}", "Shown")
    organization_id = organization.organization_id
    billing.open_account(organization_id)
    billing.keep_out_of_stripe(organization_id)
    owner = get_user_model().objects.create_user(email=f"{uuid4().hex[:12]}@acme.example")
    tenants.add_member(organization_id, owner.pk, Role.OWNER)
    return Shown(organization_id, owner.pk, 0)


def test_its_books_hold_and_its_hours_are_those_of_its_events(shown: Shown) -> None:
    of_hours = rows(
        "SELECT sum(requests), sum(charge_pico) FROM billing_usage_hour WHERE organization_id = %s",
        shown.organization_id,
    )
    of_events = rows(
        "SELECT count(*), sum(charge_pico) FROM billing_usage_event WHERE organization_id = %s",
        shown.organization_id,
    )

    assert billing.reconcile() == []
    assert of_hours == of_events
    assert of_events[0][0] == shown.requests > REQUESTS * 0.9


def test_it_reaches_back_a_month_and_not_into_the_future(shown: Shown) -> None:
    [(first, last, held_after)] = rows(
        "SELECT min(held_at), max(occurred_at), bool_or(held_at > occurred_at)"
        " FROM billing_usage_event WHERE organization_id = %s",
        shown.organization_id,
    )

    assert first < datetime.now(UTC) - 30 * DAY
    assert last <= datetime.now(UTC)
    assert not held_after


def test_it_was_paid_for_before_it_was_used(shown: Shown) -> None:
    movements = rows(
        "SELECT l.amount_pico FROM billing_ledger_tx t"
        " JOIN billing_ledger_leg l ON l.transaction_id = t.id"
        " JOIN billing_ledger_account a ON a.id = l.account_id AND a.kind = 'credit'"
        " WHERE t.organization_id = %s ORDER BY t.created_at, t.id",
        shown.organization_id,
    )
    top_ups = billing.top_ups(shown.organization_id)

    assert min(accumulate(int(amount) for (amount,) in movements)) > 0
    assert {one.state for one in top_ups} == {TopUpState.SUCCEEDED}
    for one in top_ups:
        assert one.completed_at == one.created_at < datetime.now(UTC) - timedelta(hours=1)


def test_the_month_that_ended_has_its_document(shown: Shown) -> None:
    document = billing.invoices(shown.organization_id)[-1]
    whole = billing.invoice(shown.organization_id, document.invoice_id)

    assert whole.kind is InvoiceKind.STATEMENT
    assert whole.issued_at < datetime.now(UTC)
    assert {line.model for line in whole.lines} >= {SMALL_MODEL, LARGE_MODEL}
    assert billing.invoice_pdf(whole, "Headrace").startswith(b"%PDF")


def test_begun_again_it_changes_nothing(shown: Shown) -> None:
    before = shown.counts(), billing.balance(shown.organization_id)

    write_history(shown.organization_id, shown.owner_id, SMALL_MODEL, requests=REQUESTS)

    assert (shown.counts(), billing.balance(shown.organization_id)) == before
    assert billing.reconcile() == []


def test_one_that_was_cut_short_is_finished_by_the_next_start(
    django_database: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = without_history()
    settled: list[int] = []

    def killed_at_the_third_list(some: Sequence[Settlement], using: str) -> list[Settled]:
        settled.append(len(some))
        if len(settled) == 3:
            raise KeyboardInterrupt
        return settle(some, using)

    monkeypatch.setattr(billing, "settle", killed_at_the_third_list)
    with pytest.raises(KeyboardInterrupt):
        write_history(new.organization_id, new.owner_id, SMALL_MODEL, requests=800)
    held_pico = billing.balance(new.organization_id).held_pico
    written = write_history(new.organization_id, new.owner_id, SMALL_MODEL, requests=800)

    assert held_pico > 0
    assert billing.balance(new.organization_id).held_pico == 0
    assert new.counts()[0][0] == written
    assert billing.reconcile() == []


def test_it_is_marked_and_never_planned_for_stripe(shown: Shown) -> None:
    span = [datetime.now(UTC) - 40 * DAY, datetime.now(UTC)]
    with transaction.atomic(using="housekeeper"), connections["housekeeper"].cursor() as cursor:
        cursor.execute(PLAN, [*span, *span])
        planned = rows(
            "SELECT count(*) FROM billing_stripe_export WHERE organization_id = %s",
            shown.organization_id,
        )
        transaction.set_rollback(True, using="housekeeper")

    assert billing.is_demo(shown.organization_id)
    assert planned == [(0,)]


def test_it_leaves_a_budget_partly_used_a_trial_ended_and_a_model_retired(shown: Shown) -> None:
    [budget] = [
        one for one in billing.quotas(shown.owner) if one.wanted.metric is QuotaMetric.SPEND
    ]
    keys = tenants.list_keys(shown.owner, KeyKind.PROJECT)
    revoked = [one.settings.name for one in keys if one.revoked_at is not None]

    assert 0 < budget.subjects[0].used_amount < budget.wanted.limit_amount
    assert revoked == ["trial notebook"]
    assert LARGE_MODEL not in dict(billing.models_for_sale(shown.organization_id))


def test_traffic_is_the_same_for_a_seed_and_another_for_another() -> None:
    assert traffic(UNTIL, 35, 500, 1) == traffic(UNTIL, 35, 500, 1)
    assert traffic(UNTIL, 35, 500, 1) != traffic(UNTIL, 35, 500, 2)


def test_traffic_has_the_shapes_that_people_know() -> None:
    asked = traffic(UNTIL, 35, 18_000, 7)
    prompts = sum(one.uncached_tokens + one.cached_tokens for one in asked)
    by_day = Counter(one.held_at.date() for one in asked)
    faults = Counter(
        one.held_at.date() for one in asked if one.finish_reason in ("engine_lost", "timed_out")
    )
    users = Counter(one.end_user for one in asked if one.end_user)
    batch_hours = {one.held_at.hour for one in asked if one.strand.is_batch}

    assert 15_000 < len(asked) < 20_000
    assert 0.4 < sum(one.cached_tokens for one in asked) / prompts < 0.7
    assert by_day[UNTIL.date() - DAY] < by_day[UNTIL.date() - 3 * DAY] / 2  # a Sunday, a Friday
    assert by_day[UNTIL.date() - 3 * DAY] > 1.3 * by_day[UNTIL.date() - 31 * DAY]
    [(bad_day, most), (_, next_most)] = faults.most_common(2)
    assert bad_day.isoformat() == "2026-11-20"  # a Friday
    assert most > 2 * next_most
    [(heavy, most), (_, next_most)] = users.most_common(2)
    assert heavy == "user-1042"
    assert most > 2 * next_most
    assert batch_hours <= set(range(1, 5))
    assert all(one.settled_at < UNTIL for one in asked)


@pytest.mark.parametrize(
    ("used", "usual", "limit"),
    [(72, 100, 100), (73, 100, 105), (1, 100, 100), (0, 0, 5)],
    ids=["whole steps", "the next step", "early in the month", "nothing at all"],
)
def test_a_limit_is_such_that_its_meter_stands_somewhere(used: int, usual: int, limit: int) -> None:
    assert limit_for(used, usual, 72, 5) == limit
