"""kill -9 of whoever works on a batch, at any instant: each line is in the output or the error file
once, was charged once, and the books agree.

The engine computes nothing (`benchmarks.stub_engine`): what is tested is who does what when others
die. Kills fall at seeded instants.
"""

import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import pytest
import redis
from django.db import connections
from django.db.backends.postgresql.base import DatabaseWrapper

from headrace.standalone.child_process import Child
from headrace.standalone.data_folder import REPOSITORY
from headrace.standalone.processes import process_specs, set_up_environment
from tests import books
from tests.house import LiveHouse, OwnHouse, Tenant, free_port, wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

LINES = 2_000
MANY_LINES = 4_000
WORKERS = 3
KILL_EVERY_S = 2.0
ANSWER_TOKENS = 4
STEP_S = 0.25
"""Of the stub: an answer takes four of them, so that the batch outlasts many kills."""
KILLS_OF_A_STATE = 3
INSTANT_S_MAX = 0.05
"""Of a kill, after a state is seen: reading and writing 4,000 lines takes some 0.1 s each."""
LOOK_S = 0.005
BATCHES_MAX = 6
BATCH_TIMEOUT_S = 600
SETTLE_TIMEOUT_S = 120
WORKER_READY = "event=worker_ready"
QUICK = {
    "HEADRACE_BATCH_LEASE_S": "4",
    "HEADRACE_BATCH_TEND_LEASE_S": "4",
    "HEADRACE_BATCH_TEND_WAIT_S": "1",
    "HEADRACE_BATCH_TEND_RETRY_S": "1",
    "HEADRACE_BATCH_RETRY_S": "1",
    "HEADRACE_BATCH_PUMP_S": "1",
    "HEADRACE_HOLD_RENEW_S": "1",
    "HEADRACE_HOLD_LAPSE_S": "5",
    "HEADRACE_JOURNAL_WAIT_S": "10",
}
ENDS = frozenset({"completed", "failed", "expired", "cancelled"})


class Crew:
    """The stub engine and the workers of a house: killed and started without waiting for it."""

    def __init__(self, house: LiveHouse) -> None:
        self.house = house
        self._drawn = random.Random(7)
        (self._spec,) = (s for s in process_specs(house.house) if s.name == "worker")
        house.kill("worker")
        house.kill("engine")
        self.engine = self._start_engine()
        self.workers = [self._start_worker(number) for number in range(WORKERS)]
        for worker in self.workers:
            wait_until(worker.line_seen(WORKER_READY).is_set, 120)

    def kill_worker(self) -> None:
        """One that is up, drawn by lot; another takes its place."""
        numbers = [n for n, one in enumerate(self.workers) if one.line_seen(WORKER_READY).is_set()]
        if numbers:
            number = self._drawn.choice(numbers)
            self.workers[number].kill()
            self.workers[number] = self._start_worker(number)

    def kill_all_workers(self) -> None:
        """At the same instant; nobody takes their places."""
        for worker in self.workers:
            worker.send(signal.SIGKILL)
        for worker in self.workers:
            worker.kill()
            worker.wait(10)

    def start_all_workers(self) -> None:
        """Once all are killed; one of them is ready."""
        self.workers = [self._start_worker(number) for number in range(WORKERS)]
        wait_until(lambda: any(one.line_seen(WORKER_READY).is_set() for one in self.workers), 120)

    def kill_engine(self) -> None:
        """Another takes its place, knowing nothing."""
        self.engine.kill()
        self.engine = self._start_engine()

    def stop(self) -> None:
        """Of the workers gently: they settle what they have."""
        for child in (*self.workers, self.engine):
            child.stop(30)

    def _start_worker(self, number: int) -> Child:
        return Child(
            f"worker{number}",
            (*self._spec.argv, "--hostname", f"worker{number}@%h"),
            environment=self._spec.environment,
            log_file=self.house.folder.logs / f"worker{number}.log",
        )

    def _start_engine(self) -> Child:
        house = self.house.house
        socket = house.folder.engine_socket
        socket.unlink(missing_ok=True)
        engine = Child(
            "stub",
            (
                *(sys.executable, "-m", "benchmarks.stub_engine", "--bundle", str(house.bundle)),
                *("--socket", str(socket), "--port", str(free_port()), "--step-s", str(STEP_S)),
            ),
            environment=set_up_environment(house) | {"PYTHONPATH": str(REPOSITORY)},
            log_file=house.folder.logs / "stub.log",
        )
        wait_until(socket.exists, 60)
        return engine


@pytest.fixture
def crew(own_house: OwnHouse) -> Iterator[Crew]:
    """A house whose engine computes nothing, with several workers and short leases."""
    crew = Crew(own_house(**QUICK))
    yield crew
    crew.stop()


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a tenant's, by the stock client."""

    house: LiveHouse
    tenant: Tenant
    batch_id: str
    lines: int

    def read(self) -> Any:
        """The batch object now."""
        return self.house.client(self.tenant.secret).batches.retrieve(self.batch_id)

    def is_over(self) -> bool:
        """Whether it has ended, however."""
        return self.read().status in ENDS

    def state_tended(self) -> str | None:
        """In which state somebody is looking after it at this moment; None when nobody is."""
        found = books.rows(
            "SELECT state FROM bulk_job WHERE id = %s AND tended_until > now()"
            " AND state IN ('validating', 'finalizing')",
            self.job_id,
        )
        return found[0][0] if found else None

    def has_ended(self) -> bool:
        """The same by the database, which takes a hundredth of the time."""
        return bool(
            books.rows(
                "SELECT FROM bulk_job WHERE id = %s AND state = ANY (%s)", self.job_id, list(ENDS)
            )
        )

    def done(self) -> int:
        """Its lines that are answered and charged, by the database."""
        [(count,)] = books.rows(
            "SELECT count(*) FROM bulk_item WHERE job_id = %s AND state = 'done'", self.job_id
        )
        return int(count)

    @property
    def job_id(self) -> UUID:
        """What our tables call it."""
        return UUID(self.batch_id.removeprefix("batch_"))

    def lines_of(self, file_id: str | None) -> list[dict[str, Any]]:
        """The lines of one of its files; none where there is no file."""
        if file_id is None:
            return []
        text = self.house.client(self.tenant.secret).files.content(file_id).text
        return [json.loads(line) for line in text.splitlines()]


def submit(house: LiveHouse, lines: int) -> Batch:
    """A batch of so many lines of a fresh tenant."""
    tenant = house.new_tenant()
    content = "".join(
        json.dumps(
            {
                "custom_id": f"line-{number}",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": {
                    "model": house.model,
                    "messages": [{"role": "user", "content": f"Say {number}."}],
                    "max_tokens": ANSWER_TOKENS,
                    "temperature": 0,
                },
            }
        )
        + "\n"
        for number in range(lines)
    )
    client = house.client(tenant.secret)
    file = client.files.create(file=("lines.jsonl", content.encode()), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    return Batch(house, tenant, batch.id, lines)


def assert_each_line_once(batch: Batch, *, uncharged_max: int = 0) -> None:
    """In the files, on the bill and in the books. A line whose engine and worker died together
    after its answer was stored may have cost nothing; there are `uncharged_max` such at most."""
    ended = batch.read()
    output, errors = batch.lines_of(ended.output_file_id), batch.lines_of(ended.error_file_id)

    assert ended.status == "completed"
    assert sorted(line["custom_id"] for line in output + errors) == sorted(
        f"line-{number}" for number in range(batch.lines)
    )
    assert not errors
    assert {line["response"]["status_code"] for line in output} == {200}
    counts = ended.request_counts
    assert (counts.total, counts.completed, counts.failed) == (batch.lines, batch.lines, 0)

    wait_until(lambda: not books.holds(batch.tenant), SETTLE_TIMEOUT_S)
    charged = [event for event in books.events(batch.tenant) if event["charge_pico"]]
    assert len({event["request_id"] for event in charged}) == len(charged)
    assert batch.lines - uncharged_max <= len(charged) <= batch.lines
    items = books.rows(
        "SELECT request_id, charge_pico FROM bulk_item WHERE job_id = %s AND charge_pico > 0",
        batch.job_id,
    )
    assert dict(items) == {event["request_id"]: event["charge_pico"] for event in charged}
    assert "The books agree" in batch.house.manage("reconcile")


def test_a_worker_killed_every_two_seconds_loses_and_doubles_no_line(crew: Crew) -> None:
    batch = submit(crew.house, LINES)
    wait_until(batch.done, 120)
    kills, next_s = 0, time.monotonic()
    deadline_s = next_s + BATCH_TIMEOUT_S
    while not batch.is_over():
        assert time.monotonic() < deadline_s, batch.read()
        if time.monotonic() >= next_s:
            crew.kill_worker()
            kills, next_s = kills + 1, next_s + KILL_EVERY_S
        time.sleep(KILL_EVERY_S / 10)

    assert kills >= 5
    assert_each_line_once(batch)


def test_a_batch_is_read_and_written_once_whoever_is_killed_over_it(crew: Crew) -> None:
    drawn = random.Random(8)
    caught = Counter[str]()
    for _ in range(BATCHES_MAX):
        batch = submit(crew.house, MANY_LINES)
        kill_all_over(crew, batch, drawn, caught)
        assert_each_line_once(batch)
        if min(caught["validating"], caught["finalizing"]) > 0:
            return
    pytest.fail(f"no worker was killed in the middle of one of these: {caught}")


def kill_all_over(crew: Crew, batch: Batch, drawn: random.Random, caught: Counter[str]) -> None:
    """Whenever somebody reads or writes its files, until it is over; `caught` counts the kills that
    left it in the middle."""
    deadline_s = time.monotonic() + BATCH_TIMEOUT_S
    while not batch.has_ended():
        assert time.monotonic() < deadline_s, batch.read()
        state = batch.state_tended()
        if state is not None and caught[state] < KILLS_OF_A_STATE:
            time.sleep(drawn.uniform(0.0, INSTANT_S_MAX))
            crew.kill_all_workers()
            caught[state] += batch.read().status == state
            crew.start_all_workers()
        time.sleep(LOOK_S)


def restart_postgres(crew: Crew) -> None:
    """Every session is cut, and nobody gets a new one for a moment."""
    postgres = crew.house.running.servers.postgres
    assert postgres is not None
    postgres.stop()
    postgres.start()
    for connection in connections.all():  # this process's own are broken too
        assert isinstance(connection, DatabaseWrapper)
        connection.close()
        connection.close_pool()


def flush_redis(crew: Crew) -> None:
    """Every message, wake-up and minute limit is gone."""
    client = redis.from_url(crew.house.house.addresses.redis_url)
    client.flushall()
    client.close()


def test_what_breaks_under_a_batch_loses_and_doubles_no_line(crew: Crew) -> None:
    batch = submit(crew.house, LINES)
    for share, breaking in ((0.2, flush_redis), (0.4, restart_postgres), (0.6, Crew.kill_engine)):
        wait_until(partial(_has_done, batch, int(LINES * share)), BATCH_TIMEOUT_S)
        breaking(crew)
    wait_until(batch.is_over, BATCH_TIMEOUT_S)

    assert_each_line_once(batch)


def _has_done(batch: Batch, lines: int) -> bool:
    return batch.done() >= lines
