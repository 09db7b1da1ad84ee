"""The cast of Stripe's tests: a tenant who pays in, through the facade and the fake's page."""

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
from django.db import connections

from billing.contracts import PICO, StartedTopUp, TopUp
from billing.facade import begin_topup, save_recharge, top_up, top_ups
from billing.tasks import apply_stripe_messages
from tenants.contracts import Actor, ActorKind, Permission
from tests.billing.cast import Tenant, make_tenant
from tests.billing.stripe.fake_process import Fake
from tests.house import wait_until

BACK = "https://console.example.com/billing"


@dataclass(frozen=True)
class Payer:
    """A tenant, who acts for it, and the Stripe it pays by."""

    tenant: Tenant
    actor: Actor
    fake: Fake

    def begin(self, amount: int = 25, key: str | None = None) -> StartedTopUp:
        """Wants to pay in that many units of currency."""
        return begin_topup(self.actor, amount * PICO, key or uuid4().hex, BACK)

    def pay(self, started: StartedTopUp, card: str = "pm_card_visa") -> httpx.Response:
        """Presses the page's button."""
        return httpx.post(started.payment_url, data={"payment_method": card}, timeout=30)

    def paid(self, amount: int = 25) -> StartedTopUp:
        """Has paid in by the page, and the books know."""
        started = self.begin(amount)
        assert self.pay(started).status_code == 303
        self.settled()
        assert self.state(started.top_up) == "succeeded"
        return started

    def settled(self) -> None:
        """Waits until the fake has sent all it has to say, and lets a worker take it."""
        assert self.fake.control("webhooks/drain")["idle"], self.fake.deliveries()
        read_inbox()

    def state(self, wanted: TopUp) -> str:
        """Where the top-up is."""
        return top_up(self.actor.organization_id, wanted.top_up_id).state.value

    def recharges(self) -> list[TopUp]:
        """All recharges there were, the newest first."""
        return [each for each in top_ups(self.actor.organization_id) if each.is_recharge]

    def wants_recharges(self, amount: int = 10, *, is_enabled: bool = True) -> None:
        """Buys credit without asking, whatever the balance is, or does so no longer."""
        save_recharge(
            self.actor,
            threshold_pico=1000 * PICO,
            amount_pico=amount * PICO,
            month_max_pico=1000 * PICO,
            is_enabled=is_enabled,
        )

    @property
    def posted(self) -> int:
        """The balance in pico-units."""
        return self.tenant.balance().posted_pico

    @property
    def customer_id(self) -> str:
        """Who the tenant is to Stripe."""
        rows = ask(
            "SELECT customer_id FROM billing_stripe_account WHERE organization_id = %s",
            self.actor.organization_id,
        )
        return str(rows[0][0]) if rows else ""

    def events(self) -> list[tuple[Any, ...]]:
        """Which events are marked, and what became of each."""
        return ask(
            "SELECT kind, outcome FROM billing_stripe_event WHERE organization_id = %s"
            " ORDER BY kind, outcome",
            self.actor.organization_id,
        )

    def legs(self, kind: str) -> list[int]:
        """The ledger's legs on one account of the tenant, oldest first."""
        rows = ask(
            "SELECT l.amount_pico FROM billing_ledger_leg l"
            " JOIN billing_ledger_account a ON a.id = l.account_id"
            " WHERE a.organization_id = %s AND a.kind = %s ORDER BY l.id",
            self.actor.organization_id,
            kind,
        )
        return [int(row[0]) for row in rows]


def ask(query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """All rows, as the housekeeper sees them."""
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(query, list(parameters))
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def read_inbox() -> None:
    """Applies the messages that wait, as a worker does, without the pauses between tries."""
    ask(
        "UPDATE billing_stripe_message SET next_try_at = received_at"
        " WHERE outcome = '' AND tries > 0 RETURNING id"
    )
    apply_stripe_messages()


def make_payer(name: str, fake: Fake) -> Payer:
    """A tenant without credit."""
    tenant = make_tenant(name, credit_pico=0)
    actor = Actor(ActorKind.USER, uuid4(), tenant.organization_id, frozenset(Permission))
    return Payer(tenant, actor, fake)


def events_of(payer: Payer, kind: str) -> list[Any]:
    """The events of that kind about the tenant's customer."""
    events = payer.fake.client().v1.events.list({"type": kind, "limit": 100}).data
    return [each for each in events if each.data.object["customer"] == payer.customer_id]


def send_and_wait(fake: Fake, event_id: str) -> None:
    """Sends an event, waits until it was answered well, and lets a worker take it."""

    def answered() -> int:
        good = [each for each in fake.deliveries() if each["status"] == 200]
        return len([each for each in good if each["event"] == event_id])

    before = answered()
    fake.control(f"events/{event_id}/send")
    wait_until(lambda: answered() > before)
    read_inbox()
