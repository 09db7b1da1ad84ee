"""What `benchmarks.holds` does to the database: crowds that hold, settle, void, renew, sweep.

Import it after Django is set up. Each tenant has a daily, a monthly and a per-end-user quota, which
are counted and never reached.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from uuid import UUID, uuid4

import psutil
from django.db import connections
from uuid_utils.compat import uuid7

from benchmarks.gateway_cost import process_cpu_s
from benchmarks.report import Row, percentile
from billing.contracts import (
    HoldRequest,
    QuotaMetric,
    QuotaPeriod,
    QuotaScope,
    QuotaWanted,
    Quote,
    ServiceTier,
    Settlement,
    UsageCounts,
)
from billing.facade import (
    grant_credit,
    hold,
    open_account,
    publish_offer,
    quote,
    renew,
    set_price,
    set_quota,
    settle,
    sweep,
    void,
)
from headrace.gateway.together import Together
from tenants.contracts import Actor, ActorKind, Permission
from tenants.facade import create_organization, create_project, issue_key

THREADS = 8
"""Callers at once: as many connections as the gateway has by default."""
REQUESTS = 32
"""Requests under way at once, where they are called as the gateway does."""
SECONDS = 8.0
WARM_UP_S = 3.0
TENANTS = 20
MIXED_CALLS = 10_000
CPU_PAIRS = 1_000
ONE_TENANT_PER_S = 350
MANY_TENANTS_PER_S = 400
P99_MS_MAX = 20
COMMITS_OF_A_PAIR = 2
CREDIT_PICO = 10**20
AMOUNT_MAX = 10**25
MODEL = "bench"
END_USERS = ("", "ann", "bob", "eve")


@dataclass(frozen=True, slots=True)
class Spender:
    """A tenant with credit, a key and a quote."""

    organization_id: UUID
    project_id: UUID
    key_id: UUID
    quote: Quote

    def request(self) -> HoldRequest:
        """300 tokens for one of several end users."""
        return HoldRequest(
            request_id=uuid7(),
            organization_id=self.organization_id,
            project_id=self.project_id,
            key_id=self.key_id,
            quote=self.quote,
            model_asked=MODEL,
            prompt_tokens=200,
            output_tokens_max=100,
            end_user=random.choice(END_USERS),
        )

    def settlement(self, request_id: UUID) -> Settlement:
        """Half of what was held."""
        counts = UsageCounts(100, 50, 30)
        return Settlement(request_id, counts, "stop", MODEL, organization_id=self.organization_id)

    def hold(self) -> UUID:
        """A hold that stands."""
        request = self.request()
        [outcome] = hold([request])
        assert outcome.refusal is None, outcome
        return request.request_id

    def settle(self, request_id: UUID) -> bool:
        """Settles it for half; whether it was open."""
        [settled] = settle([self.settlement(request_id)])
        return settled.posted


def new_spender() -> Spender:
    """A fresh tenant."""
    name = f"bench-{uuid4().hex[:12]}"
    organization_id = create_organization(name, name).organization_id
    open_account(organization_id)
    grant_credit(organization_id, CREDIT_PICO, "bench")
    project_id = create_project(organization_id, "bench", using="housekeeper")
    key_id = issue_key(organization_id, project_id, "bench", using="housekeeper").key_id
    operator = Actor(ActorKind.OPERATOR, None, organization_id, frozenset(Permission))
    for scope, metric, period in (
        (QuotaScope.ORGANIZATION, QuotaMetric.TOKENS, QuotaPeriod.DAY),
        (QuotaScope.ORGANIZATION, QuotaMetric.SPEND, QuotaPeriod.MONTH),
        (QuotaScope.END_USER, QuotaMetric.REQUESTS, QuotaPeriod.DAY),
    ):
        set_quota(operator, QuotaWanted(scope, metric, period, AMOUNT_MAX), "housekeeper")
    offer = quote(organization_id, project_id, MODEL, ServiceTier.INTERACTIVE)
    return Spender(organization_id, project_id, key_id, offer)


def crowd(work: Callable[[int], None]) -> None:
    """`work` in THREADS threads at once, each with its number; raises what one of them raises."""

    connections.close_all()  # this thread's own would be one too many of the pool

    def run(number: int) -> None:
        try:
            work(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(run, range(THREADS)))


def pairs_per_s(spenders: Sequence[Spender], seconds: float) -> float:
    """Holds settled a second, one a call, as fast as THREADS callers go."""
    done = [0] * THREADS
    ends_at = time.perf_counter() + seconds

    def work(number: int) -> None:
        while time.perf_counter() < ends_at:
            spender = random.choice(spenders)
            assert spender.settle(spender.hold())
            done[number] += 1

    began = time.perf_counter()
    crowd(work)
    return sum(done) / (time.perf_counter() - began)


class Desk:
    """How the gateway calls: a tenant's requests that come at once go in one list."""

    def __init__(self) -> None:
        self._hold = Together(hold)
        self._settle = Together(settle)

    async def pair(self, spender: Spender) -> None:
        """A hold and its settle."""
        request = spender.request()
        outcome = await self._hold(spender.organization_id, request)
        assert outcome.refusal is None, outcome
        settled = await self._settle(
            spender.organization_id, spender.settlement(request.request_id)
        )
        assert settled.posted


def gathered_pairs_per_s(spenders: Sequence[Spender], seconds: float) -> float:
    """Holds settled a second by requests that are under way at once, as the gateway calls."""

    async def run() -> float:
        desk, done = Desk(), 0
        began = time.perf_counter()

        async def caller() -> None:
            nonlocal done
            while time.perf_counter() < began + seconds:
                await desk.pair(random.choice(spenders))
                done += 1

        await asyncio.gather(*(caller() for _ in range(REQUESTS)))
        return done / (time.perf_counter() - began)

    return asyncio.run(run())


def p99_ms(spenders: Sequence[Spender], pairs_a_second: float, seconds: float) -> float:
    """Of a hold and its settle together, at a steady pace, from when it was due to begin."""
    latencies: list[float] = []

    async def run() -> None:
        desk, loop = Desk(), asyncio.get_running_loop()
        began = loop.time()

        async def timed(due: float) -> None:
            await asyncio.sleep(due - loop.time())
            await desk.pair(random.choice(spenders))
            latencies.append(loop.time() - due)

        await asyncio.gather(
            *(
                timed(began + number / pairs_a_second)
                for number in range(int(pairs_a_second * seconds))
            )
        )

    asyncio.run(run())
    return percentile(latencies, 99) * 1e3


def deadlocks_of_mixed_calls(spenders: Sequence[Spender], calls: int) -> int:
    """How many of so many holds, settles, voids, renewals, sweeps and grants met in a deadlock."""
    before = deadlocks()

    def work(number: int) -> None:
        drawn = random.Random(number)
        open_ids: list[tuple[Spender, UUID]] = []
        for call in range(calls // THREADS):
            spender = drawn.choice(spenders)
            kind = drawn.random()
            ids = [request_id for _, request_id in open_ids]
            drawn.shuffle(ids)
            if kind < 0.4 or not open_ids:
                open_ids.append((spender, spender.hold()))
            elif kind < 0.7:
                owner, request_id = open_ids.pop(drawn.randrange(len(open_ids)))
                owner.settle(request_id)
            elif kind < 0.8:
                void(ids[:4])
                open_ids = [one for one in open_ids if one[1] not in ids[:4]]
            elif kind < 0.95:
                renew(ids)
            elif kind < 0.98:
                sweep(0, 0)
            else:
                grant_credit(spender.organization_id, 1, f"bench-{number}-{call}")

    crowd(work)
    return deadlocks() - before


def deadlocks() -> int:
    """Of the database since its start."""
    with connections["owner"].cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def durable_commits_per_s(seconds: float) -> float:
    """Of one caller that updates one row: what a hot row can be locked and written at the most."""
    with connections["owner"].cursor() as cursor:
        cursor.execute("CREATE TABLE bench_commits (n int)")
        cursor.execute("INSERT INTO bench_commits VALUES (0)")
        done = 0
        began = time.perf_counter()
        while time.perf_counter() < began + seconds:
            cursor.execute("UPDATE bench_commits SET n = n + 1")
            done += 1
        elapsed = time.perf_counter() - began
        cursor.execute("DROP TABLE bench_commits")
    return done / elapsed


def cpu_ms_of_pair(spender: Spender, pairs: int) -> tuple[float, float]:
    """Processor time of one pair, of this process and of PostgreSQL, by a single caller."""
    [postmaster] = [
        child for child in psutil.Process().children(recursive=True) if is_postmaster(child)
    ]
    client_s, server_s = time.process_time(), process_cpu_s(postmaster.pid)
    for _ in range(pairs):
        assert spender.settle(spender.hold())
    client_s, server_s = time.process_time() - client_s, process_cpu_s(postmaster.pid) - server_s
    return client_s / pairs * 1e3, server_s / pairs * 1e3


def is_postmaster(process: psutil.Process) -> bool:
    """Whether it is the server that the others are children of."""
    parent = process.parent()
    return process.name() == "postgres" and (parent is None or parent.name() != "postgres")


def measure() -> list[Row]:
    """All numbers, one after the other."""
    publish_offer(MODEL, MODEL, "headrace", 8192, 2048)
    for token_class, price in (("input", 50_000), ("cached_input", 5_000), ("output", 250_000)):
        set_price(MODEL, ServiceTier.INTERACTIVE, token_class, price)
    spenders = [new_spender() for _ in range(TENANTS)]
    pairs_per_s(spenders, WARM_UP_S)
    with connections["owner"].cursor() as cursor:
        # As autovacuum does within minutes in a house that stays up.
        cursor.execute("ANALYZE")
    ceiling = durable_commits_per_s(WARM_UP_S) / COMMITS_OF_A_PAIR
    alone = pairs_per_s(spenders[:1], SECONDS)
    one = gathered_pairs_per_s(spenders[:1], SECONDS)
    many = gathered_pairs_per_s(spenders, SECONDS)
    late_ms = p99_ms(spenders, MANY_TENANTS_PER_S / 2, SECONDS)
    client_ms, server_ms = cpu_ms_of_pair(spenders[0], CPU_PAIRS)
    met = deadlocks_of_mixed_calls(spenders, MIXED_CALLS)
    return [
        Row("hold + settle, one tenant", one, "limit", ONE_TENANT_PER_S, "pairs/s", ">= 1"),
        Row("one tenant, a call each", alone, "two durable commits", ceiling, "pairs/s", ""),
        Row(
            f"hold + settle, {TENANTS} tenants",
            many,
            "limit",
            MANY_TENANTS_PER_S,
            "pairs/s",
            ">= 1",
        ),
        Row("p99 of a pair at half load", late_ms, "limit", P99_MS_MAX, "ms", "<= 1"),
        Row("processor time of a pair", client_ms, "PostgreSQL's", server_ms, "ms", ""),
        Row(f"deadlocks in {MIXED_CALLS:,} mixed calls", met, "one", 1, "", "<= 0"),
    ]
