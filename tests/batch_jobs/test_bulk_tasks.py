"""The broker may hand a task out twice: together, or again while the first one still runs."""

import threading
from collections.abc import Iterator
from uuid import UUID

import pytest
from django.conf import settings
from django.db import connections
from kombu.transport.redis import Channel

from batch_jobs.ports import ModelTerms
from batch_jobs.tasks import tend_jobs
from tests.batch_jobs.batch_cast import (
    MODEL,
    BatchTenant,
    Market,
    items_of,
    job_of,
    jsonl,
    line,
    make_batch_tenant,
    selling,
)

WAIT_S = 20


@pytest.fixture
def market(queue: None) -> Iterator[Market]:
    """Where they run."""
    with selling(MODEL) as market:
        yield market


@pytest.fixture
def acme(market: Market) -> BatchTenant:
    """Whose batches they are."""
    return make_batch_tenant("acme")


def test_no_task_lasts_nearly_as_long_as_the_broker_waits_for_it() -> None:
    options = getattr(settings, "CELERY_BROKER_TRANSPORT_OPTIONS", {})
    redelivered_after_s = options.get("visibility_timeout", Channel.visibility_timeout)
    pump_s = settings.BATCH_TURN_S + 2 * settings.BATCH_STOP_S
    last_step_s = max(
        settings.BATCH_TEND_S,
        settings.SUMMARY_READ_S + settings.SUMMARY_PAGE_S + 1.5 * settings.SUMMARY_EXTRACT_S,
    )

    assert 10 * max(pump_s, settings.BATCH_TEND_S + last_step_s) < redelivered_after_s


def test_a_task_that_comes_again_while_it_runs_does_nothing(
    acme: BatchTenant, market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, may_go_on = threading.Event(), threading.Event()
    sells = market.terms

    def slow(organization_id: UUID, project_id: UUID, model: str) -> ModelTerms | None:
        reading.set()
        assert may_go_on.wait(WAIT_S)
        return sells(organization_id, project_id, model)

    def work() -> None:
        try:
            tend_jobs()
        finally:
            connections.close_all()

    monkeypatch.setattr(market, "terms", slow)
    batch_id = acme.create(jsonl(map(line, "ab")))
    first = threading.Thread(target=work)
    first.start()
    try:
        assert reading.wait(WAIT_S)
        held = job_of(batch_id).tend_token
        tend_jobs()
        while_it_runs = job_of(batch_id)
    finally:
        may_go_on.set()
        first.join(WAIT_S)

    assert (while_it_runs.state, while_it_runs.tend_token) == ("validating", held)
    assert job_of(batch_id).state == "in_progress"
    assert len(items_of(batch_id)) == 2
