"""Liveness, readiness and metrics: what a balancer, an orchestrator and Prometheus ask.

Metrics tell of load and cached prefixes, so they are answered on a loopback port of their own.

Ready means: not draining, the database answers, and the engine is connected and moving. An engine
that has work and makes no step for `STALL_S` is not moving, however politely it answers.
"""

import asyncio

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from headrace import errors
from headrace.gateway.database import in_database
from headrace.gateway.runtime import GatewayRuntime
from headrace.gateway.transport.http import Scope, Send, send_error, send_json, start_response
from headrace.telemetry import metrics
from inference.client.native import EngineLost, EngineUnavailable
from inference.contracts import EngineStats

PROBE_TIMEOUT_S = 2.0
PATHS = ("/healthz", "/readyz")
METRICS_PATH = "/metrics"


async def health(runtime: GatewayRuntime, path: str, send: Send) -> None:
    """Answers one of PATHS."""
    if path == "/healthz":
        await send_json(send, 200, {"status": "ok"})
    else:
        reasons = await unready_reasons(runtime)
        status = 503 if reasons else 200
        await send_json(send, status, {"ready": not reasons, "reasons": reasons})


def came_for_metrics(scope: Scope) -> bool:
    """Whether the connection is one to METRICS_PORT, where nothing else is answered."""
    server = tuple(scope.get("server") or ())
    return settings.METRICS_PORT != 0 and server == (settings.METRICS_HOST, settings.METRICS_PORT)


async def show_metrics(runtime: GatewayRuntime, path: str, send: Send) -> None:
    """Answers METRICS_PATH, and 404 elsewhere."""
    if path != METRICS_PATH:
        await send_error(send, errors.unknown_url("GET", path))
        return
    stats = await _engine_stats(runtime)
    hello = runtime.engine.hello
    metrics.ENGINE.show(runtime.model, hello.engine_id if hello else "", stats)
    await start_response(send, 200, [(b"content-type", b"text/plain; version=0.0.4")])
    await send({"type": "http.response.body", "body": metrics.render()})


async def unready_reasons(runtime: GatewayRuntime) -> list[str]:
    """Why this process should get no new requests; empty when it should."""
    reasons: list[str] = []
    if runtime.draining:
        reasons.append("draining")
    stats, database_away = await asyncio.gather(_engine_stats(runtime), _database_away())
    if stats is None:
        reasons.append("engine: not connected or not answering")
    elif stalled(stats, settings.STALL_S):
        reasons.append(f"engine: no step for {stats.step_age_s:.0f} s with work waiting")
    if database_away:
        reasons.append("database: not answering")
    return reasons


def stalled(stats: EngineStats, stall_s: float) -> bool:
    """Whether an engine that has work has stopped making steps."""
    return stats.running + stats.waiting > 0 and stats.step_age_s > stall_s


async def _engine_stats(runtime: GatewayRuntime) -> EngineStats | None:
    try:
        return await runtime.engine.stats(PROBE_TIMEOUT_S)
    except (EngineUnavailable, EngineLost, TimeoutError):
        return None


async def _database_away() -> bool:
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            await in_database(_select_one)
    except (DatabaseError, InterfaceError, TimeoutError):
        return True
    return False


def _select_one() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
