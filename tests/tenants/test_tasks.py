"""The tasks do what waits, and end when nothing does."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.test import override_settings

from tenants import facade, tasks
from tenants.contracts import Role
from tests.leftovers import forget_news
from tests.tenants.people_cast import Company, make_company
from tests.tenants.receiver import Receiver, receiving


@pytest.fixture
def acme(django_database: object) -> Company:
    """Who is told, and nobody else of anything before."""
    forget_news()
    return make_company("acme")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Where."""
    with receiving() as one:
        yield one


def test_an_event_reaches_webhook_and_mailbox(
    acme: Company, receiver: Receiver, tmp_path: Path
) -> None:
    with override_settings(WEBHOOK_LOOPBACK_ALLOWED=True, EMAIL_FILE_PATH=str(tmp_path)):
        facade.create_webhook_endpoint(acme.owner, receiver.url, ["invoice.issued"])
        data = {"total_pico": "12340000000000"}
        facade.emit(acme.tenant.organization_id, "invoice.issued", data, using="housekeeper")
        tasks.deliver_webhooks.run()
        tasks.send_mail.run()

    assert len(receiver.received) == 1
    texts = [path.read_text() for path in tmp_path.iterdir()]
    told = [text for text in texts if f"To: {acme.people[Role.BILLING].email}" in text]
    assert any("An invoice was issued." in text and "total: 12.34" in text for text in told)


def test_an_export_is_written_by_the_task(acme: Company) -> None:
    asked = facade.request_export(acme.owner)
    tasks.keep_and_forget.run()

    assert facade.read_export(acme.owner, asked.export_id).state == "ready"


def test_every_task_of_the_beat_is_one_that_a_worker_knows() -> None:
    from headrace.celery import app

    app.loader.import_default_modules()
    scheduled = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    routed = {route["queue"] for route in settings.CELERY_TASK_ROUTES.values()}

    assert scheduled <= set(app.tasks)
    named = {name for name in settings.CELERY_TASK_ROUTES if "*" not in name}
    assert named <= set(app.tasks)
    assert routed <= {queue.name for queue in settings.CELERY_TASK_QUEUES}
