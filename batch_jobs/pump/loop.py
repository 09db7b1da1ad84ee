"""The pump of one worker process: keeps requests in flight, and writes down what comes of them.

Everything here runs on the gateway's event loop. A turn claims; requests that it leaves in flight
go on without it. Nothing is written without the item's fencing number, and no transaction is open
while anything is computed: whatever kills the process, the next holder of a lease goes on.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from django.db import Error as DatabaseError

from batch_jobs.models import JobKind
from batch_jobs.ports import BulkAnswer, BulkOutcome, BulkRequest, PipelinePort
from batch_jobs.pump import transitions
from batch_jobs.pump.claiming import ANSWERED, ClaimedItem, claim
from batch_jobs.pump.lists import Lists
from batch_jobs.pump.requests import prepare
from batch_jobs.pump.steering import Steering, steer
from batch_jobs.pump.transitions import Answered, Attempt, Ended, HeldBack, Returned
from batch_jobs.pump.verdicts import HeldJobs, RetryLimits, failed, verdict

AGAIN_S = 0.1
"""When a queue that had too little is looked into again while something of it is in flight, and how
often the engines' load is asked for when nothing ends."""
GATHER_S = 0.02
"""Room that comes within it is claimed for at once."""
WAKE_S = 1.0
"""Other workers are not woken more often."""
WRITE_AGAIN_S = 1.0
ENDED_MAX = 2
"""So many times what may be in flight may be held, with what only waits to be written."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PumpLimits:
    """How much one pump takes on, and how long; see the settings of the same names."""

    in_flight_max: int
    claim_max: int
    claim_jobs_max: int
    list_max: int
    turn_s: float
    stop_s: float
    lease_s: int
    grace_s: int
    renewals_max: int
    retry: RetryLimits


@dataclass(slots=True, eq=False)
class _Flight:
    """An item under way. `given_up` says as what it is given back, once it is aborted."""

    item: ClaimedItem
    is_computing: bool = True
    renewals: int = 0
    given_up: Attempt | None = None
    task: "asyncio.Task[None] | None" = None


class Pump:
    """`wake_pump` and `wake_tending` reach other workers; they block, and may fail."""

    def __init__(
        self,
        port: PipelinePort,
        limits: PumpLimits,
        wake_pump: Callable[[], None],
        wake_tending: Callable[[], None],
    ) -> None:
        self._port = port
        self._limits = limits
        self._wake_pump = wake_pump
        self._wake_tending = wake_tending
        self._steering = Steering(limits.in_flight_max)
        self._flights: dict[int, _Flight] = {}
        self._computing = 0
        self._held_jobs = HeldJobs()
        self._news = asyncio.Event()
        self._is_stopping = False
        self._woken_at_s = float("-inf")
        self._renewing: asyncio.Task[None] | None = None
        self._answers = Lists(port, transitions.store_answers, limits.list_max)
        self._ends = Lists(port, self._end_list, limits.list_max)
        self._returns = Lists(port, transitions.return_items, limits.list_max)

    @property
    def in_flight(self) -> int:
        """Items held, those included that only wait to be written."""
        return len(self._flights)

    # --- turns ------------------------------------------------------------------------------------

    async def turn(self) -> bool:
        """Claims for up to `turn_s`; whether there is more to do, now or when what it left in
        flight has ended. One that is stopped leaves nothing in flight."""
        ends_at_s = time.monotonic() + self._limits.turn_s
        again_at_s = 0.0
        while not self._is_stopping and (now_s := time.monotonic()) < ends_at_s:
            load = await self._port.load()
            self._steering = steer(self._steering, load, self._computing, now_s)
            if not load.connected and not self._flights:
                return False
            self._news.clear()
            room = self._room() if load.connected else 0
            if room and now_s >= again_at_s:
                claimed = await self._take(room)
                if claimed == room:
                    await self._wake_others(now_s)
                elif not claimed and not self._flights:
                    return False
                else:
                    again_at_s = now_s + AGAIN_S
            await self._wait(ends_at_s)
        if self._is_stopping:
            await self.drain()
        return not self._is_stopping

    def stop(self) -> None:
        """Claims nothing more; a turn that is under way ends within AGAIN_S. From any thread."""
        self._is_stopping = True

    async def drain(self) -> None:
        """Waits for what is in flight, at most `stop_s`, and gives the rest back to the queue."""
        self.stop()
        await self._until_empty(self._limits.stop_s)
        for flight in list(self._flights.values()):
            self._abort(flight, Attempt.BROKEN_OFF)
        await self._until_empty(self._limits.stop_s)

    def _room(self) -> int:
        may = min(
            self._steering.in_flight - self._computing,
            ENDED_MAX * self._limits.in_flight_max - len(self._flights),
            self._limits.claim_max,
        )
        return max(0, may)

    async def _take(self, room: int) -> int:
        try:
            claimed = await self._port.in_database(
                claim, room, self._limits.lease_s, self._limits.claim_jobs_max
            )
        except DatabaseError:
            logger.exception("nothing claimed: the database does not answer")
            return 0
        fresh = []
        for item in claimed:
            flight = self._start(item)
            if item.state == ANSWERED:
                self._go_on(flight, self._collect_charge(flight))
            elif item.attempts > self._limits.retry.attempts_max:
                message = f"no answer in {self._limits.retry.attempts_max} attempts"
                self._go_on(flight, self._write(failed(item, 500, "attempts_exhausted", message)))
            else:
                fresh.append(flight)
        if fresh:
            await self._run_all(fresh)
        return len(claimed)

    async def _run_all(self, flights: list[_Flight]) -> None:
        items = [flight.item for flight in flights]
        plans: list[BulkRequest | Ended | Returned]
        try:
            plans = await self._port.in_database(prepare, items)
        except DatabaseError:
            logger.exception("texts of %d items not read", len(items))
            plans = [Returned(item, Attempt.NOT_MADE, WRITE_AGAIN_S) for item in items]
        except Exception:  # a process edge: what cannot be prepared must run out of attempts
            logger.exception("%d items not prepared", len(items))
            plans = [Returned(item, Attempt.FAILED, WRITE_AGAIN_S) for item in items]
        for flight, plan in zip(flights, plans, strict=True):
            if isinstance(plan, BulkRequest):
                self._go_on(flight, self._run(flight, plan))
            else:
                self._go_on(flight, self._write(plan))

    async def _wake_others(self, now_s: float) -> None:
        if now_s - self._woken_at_s >= WAKE_S:
            self._woken_at_s = now_s
            await self._tell(self._wake_pump)

    async def _tell(self, wake: Callable[[], None]) -> None:
        try:
            await self._port.in_database(wake)
        except Exception:
            logger.warning("workers not woken: the broker does not answer", exc_info=True)

    async def _wait(self, ends_at_s: float) -> None:
        left_s = ends_at_s - time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(AGAIN_S, left_s))):
                await self._news.wait()
        await asyncio.sleep(GATHER_S)

    async def _until_empty(self, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while tasks := [f.task for f in self._flights.values() if f.task is not None]:
                    await asyncio.wait(tasks)

    # --- one item ---------------------------------------------------------------------------------

    def _start(self, item: ClaimedItem) -> _Flight:
        flight = _Flight(item)
        if (older := self._flights.get(item.item_id)) is not None:
            # Its lease ran out here, and this very process claimed the item again.
            self._abort(older, Attempt.BROKEN_OFF)
        self._flights[item.item_id] = flight
        self._computing += 1
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._keep_leases())
        return flight

    def _go_on(self, flight: _Flight, work: Awaitable[None]) -> None:
        flight.task = asyncio.create_task(self._fly(flight, work))
        flight.task.add_done_callback(lambda _: self._landed(flight))

    async def _fly(self, flight: _Flight, work: Awaitable[None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            if flight.given_up is None:
                raise
            await self._write(Returned(flight.item, flight.given_up))
        except Exception:  # a process edge: its lease runs out, and the next holder finds it
            logger.exception("item %d failed in the pump", flight.item.item_id)

    def _landed(self, flight: _Flight) -> None:
        self._computed(flight)
        if self._flights.get(flight.item.item_id) is flight:
            del self._flights[flight.item.item_id]
        self._news.set()

    async def _run(self, flight: _Flight, request: BulkRequest) -> None:
        async def on_answer(answer: BulkAnswer) -> bool:
            return await self._store(flight, answer)

        outcome = await self._port.complete(request, on_answer)
        self._computed(flight)
        if outcome is None:
            # Its settle takes long: whoever finds the lease run out asks for the charge.
            return
        await self._conclude(flight.item, outcome)

    async def _store(self, flight: _Flight, answer: BulkAnswer) -> bool:
        self._computed(flight)
        item = flight.item
        if flight.given_up is not None:
            return False
        is_summary = item.kind == JobKind.SUMMARY
        entry = Answered(
            item,
            answer.text if is_summary else answer.body.decode(),
            answer.prompt_tokens,
            answer.cached_tokens,
            answer.completion_tokens,
        )
        try:
            is_stored = item.item_id in await self._answers.put(entry)
        except DatabaseError:
            logger.exception("answer of item %d not stored", item.item_id)
            return False
        # A list may hold two attempts of this process at one item; the later one alone is paid for.
        return is_stored and self._flights.get(item.item_id) is flight

    async def _conclude(self, item: ClaimedItem, outcome: BulkOutcome) -> None:
        if outcome.job_wide:
            held = self._held_jobs.hold(item, outcome, time.monotonic())
            if held is not None:
                await self._hold_back(held)
        elif not outcome.deferred:
            self._held_jobs.runs(item.job_id)
        await self._write(verdict(item, outcome, self._limits.retry))

    async def _hold_back(self, held: HeldBack) -> None:
        logger.warning(
            "job %s held back for %.0f s %s", held.job_id, held.wait_s, held.pause_reason
        )
        try:
            await self._port.in_database(transitions.hold_back, [held])
        except DatabaseError:
            logger.exception("job %s not held back", held.job_id)

    async def _collect_charge(self, flight: _Flight) -> None:
        """An earlier holder stored the answer; while its hold is open the lease runs on."""
        self._computed(flight)
        item = flight.item
        charge_pico = await self._port.in_database(
            self._port.charge_of, item.organization_id, item.request_id
        )
        if charge_pico is not None:
            await self._write(Ended(item, charge_pico))

    async def _write(self, entry: Ended | Returned) -> None:
        """Repeats while the database is away, as long as the lease may be ours, and while more
        items share its answer than end at once."""
        until_s = time.monotonic() + self._limits.lease_s
        while True:
            try:
                if isinstance(entry, Returned):
                    await self._returns.put(entry)
                elif entry.item.item_id in await self._ends.put(entry):
                    until_s = time.monotonic() + self._limits.lease_s
                    continue
            except DatabaseError:
                if time.monotonic() >= until_s:
                    raise
                logger.warning("item %d not written yet", entry.item.item_id, exc_info=True)
                await asyncio.sleep(WRITE_AGAIN_S)
            else:
                return

    def _end_list(self, ends: Sequence[Ended]) -> frozenset[int]:
        """On a database thread; those that are to be written again."""
        ended = transitions.end_items(ends)
        if ended.has_finalized:
            _tell(self._wake_tending)
        return ended.crowded

    def _computed(self, flight: _Flight) -> None:
        """The engine is done with it: there is room for another."""
        if flight.is_computing:
            flight.is_computing = False
            self._computing -= 1
            self._news.set()

    # --- leases -----------------------------------------------------------------------------------

    async def _keep_leases(self) -> None:
        """Renews while anything is in flight; what is not ours or not wanted now is aborted."""
        while self._flights:
            await asyncio.sleep(self._limits.lease_s / 6)
            asked = list(self._flights.values())
            try:
                kept = await self._port.in_database(
                    transitions.renew,
                    [flight.item for flight in asked],
                    self._limits.lease_s,
                    self._limits.grace_s,
                )
            except DatabaseError:
                logger.exception("leases of %d items not renewed", len(asked))
                continue
            for flight in asked:
                flight.renewals += 1
                if flight.item.item_id not in kept:
                    self._abort(flight, Attempt.BROKEN_OFF)
                elif flight.renewals > self._limits.renewals_max:
                    self._abort(flight, Attempt.FAILED)

    def _abort(self, flight: _Flight, attempt: Attempt) -> None:
        """Stops computing it and gives it back, unless it is only about to be written."""
        if flight.is_computing and flight.given_up is None and flight.task is not None:
            flight.given_up = attempt
            flight.task.cancel()


def _tell(wake: Callable[[], None]) -> None:
    try:
        wake()
    except Exception:  # a wake-up may be lost: the beat sends one soon
        logger.warning("workers not woken: the broker does not answer", exc_info=True)
