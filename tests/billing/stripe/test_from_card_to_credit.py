"""From a card to credit through the doors of a web process: the tenant's, the page, Stripe's."""

import io
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.test import override_settings

from billing import tasks
from billing.contracts import PICO, UsageCounts
from billing.facade import roll_up, settle
from tenants.contracts import Permission
from tenants.facade import create_admin_key, operator_of
from tests.billing.cast import used
from tests.billing.stripe.cast import Payer, ask
from tests.billing.stripe.fake_process import Fake


class Console:
    """A tenant's program, with an admin key."""

    def __init__(self, web_url: str, payer: Payer) -> None:
        key = create_admin_key(
            operator_of(payer.actor.organization_id),
            "console",
            frozenset({Permission.BILLING_READ, Permission.BILLING_WRITE}),
            using="housekeeper",
        )
        self._base = f"{web_url}/api/v1/organizations/{payer.actor.organization_id}"
        self._headers = {"authorization": f"Bearer {key.secret}"}

    def get(self, path: str) -> Any:
        """The JSON of a GET."""
        answer = httpx.get(f"{self._base}/{path}", headers=self._headers, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def top_up(self, amount: str, key: str) -> httpx.Response:
        """Begins to pay in."""
        return httpx.post(
            f"{self._base}/topups",
            json={"amount": amount, "return_url": f"{settings.PUBLIC_URL}/done"},
            headers=self._headers | {"idempotency-key": key},
            timeout=30,
        )


def test_a_tenant_pays_in_and_has_it(payer: Payer, stranger: Payer, web_url: str) -> None:
    console = Console(web_url, payer)
    key = uuid4().hex
    begun = console.top_up("12.50", key)
    again = console.top_up("12.50", key)

    assert begun.status_code == 201, begun.text
    assert begun.json()["state"] == "pending"
    assert again.json()["payment_url"] == begun.json()["payment_url"]
    assert console.get("billing")["balance"]["amount_pico"] == "0"

    page = httpx.get(begun.json()["payment_url"], timeout=30)
    assert "12.50 USD" in page.text
    paid = httpx.post(begun.json()["payment_url"], data={"payment_method": "pm_card_visa"})
    payer.settled()

    assert paid.headers["location"] == f"{settings.PUBLIC_URL}/done?top_up=done"
    assert console.get(f"topups/{begun.json()['id']}")["state"] == "succeeded"
    assert console.get("billing")["balance"]["amount_pico"] == str(125 * PICO // 10)
    assert [each["category"] for each in console.get("credits")["data"]] == ["paid"]
    assert Console(web_url, stranger).get("billing")["balance"]["amount_pico"] == "0"


def test_a_stripe_that_is_away_is_a_503_to_try_again(payer: Payer, web_url: str) -> None:
    console = Console(web_url, payer)
    key = uuid4().hex
    payer.fake.control("troubles", method="POST", path="/v1/customers", status=500, count=2)

    refused = console.top_up("12.50", key)

    assert refused.status_code == 503, refused.text
    assert console.top_up("12.50", key).status_code == 201


def test_the_workers_tasks_do_what_is_due(payer: Payer, fake: Fake) -> None:
    payer.paid(25)
    settle([used(payer.tenant.held(), UsageCounts(60, 0, 40))])
    roll_up()

    tasks.settle_stripe()
    tasks.export_to_stripe()
    tasks.compare_with_stripe()

    assert payer.posted == 25 * PICO - 100
    assert ask(
        "SELECT count(*) FROM billing_stripe_export WHERE organization_id = %s",
        payer.actor.organization_id,
    ) == [(0,)], "the hour is not over"


def test_without_a_key_the_tasks_do_nothing(payer: Payer) -> None:
    started = payer.begin(25)
    calls = len(payer.fake.client().v1.events.list({"limit": 100}).data)
    with override_settings(STRIPE_API_KEY=""):
        tasks.settle_stripe()
        tasks.export_to_stripe()
        tasks.compare_with_stripe()

    assert payer.state(started.top_up) == "pending"
    assert len(payer.fake.client().v1.events.list({"limit": 100}).data) == calls


def test_an_operator_compares_by_hand(fake: Fake) -> None:
    said = io.StringIO()
    day = "2020-01-01"

    call_command("reconcile_stripe", "--day", day, stdout=said)

    assert said.getvalue() == f"{day}: 0 sums, 0 tokens used, 0 told, 0 differ\n"
    with override_settings(STRIPE_API_KEY=""), pytest.raises(CommandError, match="cannot be asked"):
        call_command("reconcile_stripe", "--day", day, stdout=said)


def test_every_task_of_the_beat_is_one_of_ours() -> None:
    from django.conf import settings

    from headrace.celery import app

    app.loader.import_default_modules()
    wanted = {each["task"] for each in settings.CELERY_BEAT_SCHEDULE.values()}

    assert wanted <= set(app.tasks)
