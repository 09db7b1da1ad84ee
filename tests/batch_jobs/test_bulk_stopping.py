"""A worker that is told to end leaves its job at the next page, and another goes on at once."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connections

from batch_jobs import ending, stopping
from batch_jobs.batches import output, validating
from batch_jobs.summaries import retrying, staging
from batch_jobs.tasks import stop_work
from batch_jobs.tending import tend
from tests.batch_jobs import batch_cast, summary_cast
from tests.batch_jobs.batch_cast import (
    MODEL,
    BatchTenant,
    Market,
    items_of,
    jsonl,
    line,
    make_batch_tenant,
    selling,
)
from tests.batch_jobs.summary_cast import SummaryTenant, make_summary_tenant


@pytest.fixture
def market(queue: None) -> Iterator[Market]:
    """Where they run."""
    with selling(MODEL) as market:
        yield market


@pytest.fixture
def buyer(market: Market) -> BatchTenant:
    """Whose batches they are."""
    return make_batch_tenant("acme")


@pytest.fixture
def team(market: Market) -> SummaryTenant:
    """Whose summarisation jobs they are."""
    return make_summary_tenant("acme")


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> "Worker":
    """Whose process is told to end in the midst of a step."""
    return Worker(monkeypatch)


class Worker:
    """One process after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.start()

    def start(self) -> None:
        """A fresh one, which nobody has told anything."""
        self._monkeypatch.setattr(stopping, "_told", threading.Event())

    def ends_in(self, place: Any, name: str, call: int) -> None:
        """It is told to end while it calls this for the `call`-th time."""
        real, calls = getattr(place, name), iter(range(1, 1_000_000))

        def told(*args: Any, **named: Any) -> Any:
            if next(calls) == call:
                stop_work()
            return real(*args, **named)

        self._monkeypatch.setattr(place, name, told)

    def tend(self) -> int:
        """The steps it takes."""
        return tend(datetime.now(UTC))


def is_free(job_id: Any) -> bool:
    """Whether the next tender may take the job now."""
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute("SELECT tended_until <= now() FROM bulk_job WHERE id = %s", [job_id])
        free: bool = cursor.fetchone()[0]
    return free


def test_a_batch_that_is_read_is_left_between_two_lists(
    buyer: BatchTenant, worker: Worker, market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validating, "LIST_LINES", 2)
    batch_id = buyer.create(jsonl(map(line, "abcde")))
    worker.ends_in(market, "terms", 1)

    assert worker.tend() == 1

    job = batch_cast.job_of(batch_id)
    assert (job.state, is_free(job.id), items_of(batch_id)) == ("validating", True, [])
    worker.start()
    worker.tend()
    assert buyer.read(batch_id)["status"] == "in_progress"
    assert len(items_of(batch_id)) == 5


def test_documents_that_are_read_are_left_after_the_page_that_was_begun(
    team: SummaryTenant, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django.conf.settings.SUMMARY_PAGE_DOCUMENTS", 2)
    summary_id = team.create(*"abcdefgh")
    worker.ends_in(staging, "stage_texts", 2)

    assert worker.tend() == 1

    job = summary_cast.job_of(summary_id)
    assert (job.state, is_free(job.id)) == ("validating", True)
    assert sorted(summary_cast.states_of(summary_id)) == ["a", "b", "c", "d"]
    assert job.cursor["tries"] == 0, "that it was told to end says nothing about the input"
    worker.start()
    worker.tend()
    assert team.read(summary_id)["status"] == "in_progress"
    assert sorted(summary_cast.states_of(summary_id)) == [*"abcdefgh"]
    summary_cast.check_books(summary_id)


def test_lines_of_a_cancelled_batch_are_left_after_a_page(
    buyer: BatchTenant, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "PAGE_ITEMS", 2)
    batch_id = buyer.running(*"abcdef")
    buyer.cancel(batch_id)
    worker.ends_in(ending, "_end_page", 2)

    assert worker.tend() == 1

    job = batch_cast.job_of(batch_id)
    assert (job.state, is_free(job.id)) == ("cancelling", True)
    assert [one.state for one in items_of(batch_id)] == ["cancelled"] * 4 + ["queued"] * 2
    worker.start()
    worker.tend()
    assert buyer.read(batch_id)["status"] == "cancelled"


def test_an_output_is_left_between_two_pages_and_written_anew(
    buyer: BatchTenant, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "PAGE_ITEMS", 1)
    batch_id = buyer.running(*"abc")
    for custom_id in "abc":
        batch_cast.answer(batch_id, custom_id)
    worker.ends_in(output, "_page", 2)

    assert worker.tend() == 1

    job = batch_cast.job_of(batch_id)
    assert (job.state, is_free(job.id), job.output_file_id) == ("finalizing", True, None)
    worker.start()
    worker.tend()
    assert sorted(buyer.lines_of(batch_id)[0]) == ["a", "b", "c"]


def test_a_retry_is_left_after_a_page(
    team: SummaryTenant, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "PAGE_ITEMS", 1)
    summary_id = team.running("a", "b", "c")
    summary_cast.fail(summary_id, "a", "b", "c")
    summary_cast.tend_now()
    team.act("retry", summary_id)
    worker.ends_in(retrying, "_retry_page", 2)

    assert worker.tend() == 1

    job = summary_cast.job_of(summary_id)
    assert (job.state, is_free(job.id)) == ("validating", True)
    assert summary_cast.states_of(summary_id) == {"a": "queued", "b": "queued", "c": "failed"}
    worker.start()
    worker.tend()
    assert summary_cast.states_of(summary_id) == dict.fromkeys("abc", "queued")


def test_a_worker_that_is_told_to_end_begins_no_other_job(
    buyer: BatchTenant, worker: Worker
) -> None:
    batch_id = buyer.create(jsonl([line("a")]))
    stop_work()

    assert worker.tend() == 0
    assert buyer.read(batch_id)["status"] == "validating"
