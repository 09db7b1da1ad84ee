"""Writing the charge: once, however often it takes to reach the database.

`settle_until_done` is the only caller of billing's settle for requests this process carried;
`settle_orphans` does it for requests whose process died, from the engine's journal.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import structlog
from django.db import DatabaseError, IntegrityError, InterfaceError

import batch_jobs.facade
import billing.facade
from billing.contracts import Settled, Settlement, SettlementInvalid
from headrace.gateway.database import in_database
from headrace.gateway.request_ids import public_request_id
from headrace.gateway.settling import charging
from headrace.telemetry import metrics
from inference.contracts import Finish, FinishReason

RETRY_FIRST_S = 0.1
RETRY_LONGEST_S = 5.0
RETRY_ATTEMPTS_MAX = 200
"""About a quarter of an hour. After that the engine's journal, or the sweeper, closes the hold."""

log = structlog.get_logger(__name__)


async def settle_until_done(
    settle: Callable[[Settlement], Awaitable[Settled]], settlement: Settlement
) -> Settled | None:
    """Settles one request, repeating while the database is away; None when it gave up."""
    wait_s = RETRY_FIRST_S
    for _ in range(RETRY_ATTEMPTS_MAX):
        try:
            with metrics.SETTLE_SECONDS.time():
                settled = await settle(settlement)
        except (DatabaseError, InterfaceError) as error:
            metrics.SETTLE_RETRIES.inc()
            log.warning(
                "settle postponed",
                request_id=public_request_id(settlement.request_id),
                error=str(error).strip(),
            )
            await asyncio.sleep(wait_s)
            wait_s = min(RETRY_LONGEST_S, wait_s * 2)
            continue
        _count(settlement, settled)
        return settled
    log.error(
        "settle given up: left to the sweeper", request_id=public_request_id(settlement.request_id)
    )
    return None


async def void_until_done(request_id: UUID) -> None:
    """Gives a hold back that no engine ever worked for; same patience as a settle."""
    wait_s = RETRY_FIRST_S
    for _ in range(RETRY_ATTEMPTS_MAX):
        try:
            await in_database(billing.facade.void, [request_id])
        except (DatabaseError, InterfaceError):
            await asyncio.sleep(wait_s)
            wait_s = min(RETRY_LONGEST_S, wait_s * 2)
            continue
        return


async def settle_orphans(finishes: Sequence[Finish], model: str) -> None:
    """Settles finishes that nobody waits for; returns when they may be acknowledged.

    Raises DatabaseError while the database is away: the engine offers them again.
    """
    ids = _hold_ids(finishes)
    ours = [finish for finish in finishes if finish.request_id in ids]
    refused = [ids[f.request_id] for f in ours if f.reason is FinishReason.REFUSED]
    if refused:
        await _void_all(refused)
    computed = [f for f in ours if f.reason is not FinishReason.REFUSED]
    if not computed:
        return
    forfeited = await in_database(
        batch_jobs.facade.forfeit, [ids[finish.request_id] for finish in computed]
    )
    settlements = [
        charging.settlement_of_orphan(
            ids[finish.request_id], model, finish, forfeited=ids[finish.request_id] in forfeited
        )
        for finish in computed
    ]
    for settlement, settled in zip(settlements, await _settle_all(settlements), strict=True):
        if settled is not None and settled.posted:
            metrics.ORPHANS_SETTLED.inc()
            _count(settlement, settled)


async def _settle_all(settlements: Sequence[Settlement]) -> list[Settled | None]:
    """One call for all; if one of them is impossible, one by one, so that it stops no other."""
    try:
        return list(await in_database(billing.facade.settle, settlements))
    except (SettlementInvalid, IntegrityError):
        return [await _settle_if_possible(settlement) for settlement in settlements]


async def _settle_if_possible(settlement: Settlement) -> Settled | None:
    try:
        (settled,) = await in_database(billing.facade.settle, [settlement])
    except (SettlementInvalid, IntegrityError):
        log.exception(
            "impossible settlement left to the sweeper",
            request_id=public_request_id(settlement.request_id),
        )
        return None
    return settled


async def _void_all(request_ids: Sequence[UUID]) -> None:
    """As `_settle_all`."""
    try:
        await in_database(billing.facade.void, request_ids)
    except IntegrityError:
        for request_id in request_ids:
            try:
                await in_database(billing.facade.void, [request_id])
            except IntegrityError:
                log.exception(
                    "impossible void left to the sweeper", request_id=public_request_id(request_id)
                )


def _hold_ids(finishes: Sequence[Finish]) -> dict[str, UUID]:
    """The holds behind request ids. Others were not submitted by a gateway: nobody to charge."""
    ids: dict[str, UUID] = {}
    for finish in finishes:
        try:
            ids[finish.request_id] = UUID(hex=finish.request_id)
        except ValueError:
            log.warning("finish of a stranger acknowledged", request_id=finish.request_id[:64])
    return ids


def _count(settlement: Settlement, settled: Settled) -> None:
    if settled.posted:
        log.info(
            "request settled",
            request_id=public_request_id(settlement.request_id),
            finish_reason=settlement.finish_reason,
            uncached_input_tokens=settlement.counts.uncached_input_tokens,
            cached_input_tokens=settlement.counts.cached_input_tokens,
            output_tokens=settlement.counts.output_tokens,
            charge_pico=settled.charge_pico,
        )
        metrics.REQUESTS.labels(settlement.finish_reason).inc()
        metrics.TOKENS.labels("input").inc(settlement.counts.uncached_input_tokens)
        metrics.TOKENS.labels("cached_input").inc(settlement.counts.cached_input_tokens)
        metrics.TOKENS.labels("output").inc(settlement.counts.output_tokens)
