"""The Celery application: bulk pumps and the hold sweeper.

Tasks carry ids only and are short; what must not be lost lives in PostgreSQL. The worker keeps a
gateway runtime of its own from its start to its end.
"""

import os
import sys
from typing import Any

import structlog
from celery import Celery
from celery.signals import (
    beat_init,
    setup_logging,
    worker_ready,
    worker_shutdown,
    worker_shutting_down,
)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "headrace.settings")

app = Celery("headrace")
app.set_default()  # "current" is per thread: any thread may wake a worker
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["batch_jobs", "billing", "tenants"])

log = structlog.get_logger(__name__)


@setup_logging.connect
def _keep_our_logging(**_: Any) -> None:
    """Django's set-up has configured logging already; Celery must not replace it."""


@worker_ready.connect
def _start_gateway(**_: Any) -> None:
    from django.conf import settings
    from prometheus_client import start_http_server

    from headrace.gateway.batch_port import batch_port
    from headrace.telemetry import metrics
    from headrace.telemetry.backlogs import BacklogCollector

    batch_port.start()
    if settings.WORKER_METRICS_PORT:
        metrics.REGISTRY.register(BacklogCollector())
        start_http_server(settings.WORKER_METRICS_PORT, "127.0.0.1", registry=metrics.REGISTRY)
    _say("worker_ready")


@beat_init.connect
def _beat_started(**_: Any) -> None:
    _say("beat_ready")


def _say(event: str) -> None:
    """The supervisor waits for these lines, so no log level silences them."""
    sys.stderr.write(f"event={event}\n")
    sys.stderr.flush()


@worker_shutting_down.connect
def _stop_bulk_work(**_: Any) -> None:
    """Runs in the signal handler: what is under way ends soon, which the worker waits for."""
    from batch_jobs.tasks import stop_work

    stop_work()


@worker_shutdown.connect
def _close_gateway(**_: Any) -> None:
    from batch_jobs.tasks import drain_pump
    from headrace.gateway.batch_port import batch_port

    drain_pump()
    batch_port.close()


@app.task(name="headrace.sweep_holds")
def sweep_holds() -> None:
    """Voids holds that nobody has renewed for so long that no journal will speak for them."""
    from django.conf import settings

    import billing.facade

    report = billing.facade.sweep(settings.HOLD_LAPSE_S, settings.JOURNAL_WAIT_S)
    for request_id in report.voided:
        log.warning("hold voided: no news of its request", request_id=request_id.hex)
    for request_id, fault in report.stuck.items():
        log.error("hold cannot be closed", request_id=request_id.hex, fault=fault)


@app.task(name="headrace.forget_sessions")
def forget_sessions() -> None:
    """Deletes sessions that have ended by themselves."""
    from headrace.sign_in.sessions import forget_ended_sessions

    forget_ended_sessions()


@app.task(name="headrace.carry_out_orders")
def carry_out_orders() -> None:
    """Does what operators ordered on their pages."""
    from headrace.operator_console.orders.carrying_out import carry_out

    carry_out()


@app.task(name="headrace.report_house")
def report_house() -> None:
    """Writes down how the house is, for the operator's pages."""
    from datetime import UTC, datetime

    from headrace.operator_console.reports.engine_time import report_engine_time
    from headrace.operator_console.reports.house import report_house as report

    report()
    report_engine_time(datetime.now(UTC))


@app.task(name="headrace.reconcile")
def reconcile() -> None:
    """Checks every invariant of the books, and says what is broken."""
    from headrace.operator_console.reports.books import reconcile_and_keep

    reconcile_and_keep()
