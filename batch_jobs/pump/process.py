"""The one pump of this process, for those outside the event loop: the Celery task and the worker's
start and end. It is made at its first turn and lives as long as the gateway's loop."""

from django.conf import settings

from batch_jobs.ports import pipeline_port
from batch_jobs.pump.loop import Pump, PumpLimits
from batch_jobs.pump.verdicts import RetryLimits
from batch_jobs.waking import wake_pump, wake_tending

_pump: Pump | None = None


def run_turn() -> bool:
    """Blocks for one turn; whether there is more to do."""
    return pipeline_port().run(_the_pump().turn()).result()


def stop() -> None:
    """Has nothing more claimed in this process."""
    if _pump is not None:
        _pump.stop()


def drain() -> None:
    """Blocks until nothing is in flight in this process: BATCH_STOP_S at most, and then some for
    giving the rest back to the queue."""
    if _pump is not None and _pump.in_flight:
        pipeline_port().run(_pump.drain()).result()


def _the_pump() -> Pump:
    """Called by one thread at a time: the task has one seat."""
    global _pump  # noqa: PLW0603 - one a process
    if _pump is None:
        _pump = Pump(pipeline_port(), limits(), wake_pump, wake_tending)
    return _pump


def limits() -> PumpLimits:
    """As the settings have them."""
    return PumpLimits(
        in_flight_max=settings.BATCH_IN_FLIGHT_MAX,
        claim_max=settings.BATCH_CLAIM_MAX,
        claim_jobs_max=settings.BATCH_CLAIM_JOBS_MAX,
        list_max=settings.BATCH_LIST_MAX,
        turn_s=settings.BATCH_TURN_S,
        stop_s=settings.BATCH_STOP_S,
        lease_s=settings.BATCH_LEASE_S,
        grace_s=settings.BATCH_END_GRACE_S,
        renewals_max=settings.BATCH_LEASE_RENEWALS_MAX,
        retry=RetryLimits(settings.BATCH_ATTEMPTS_MAX, settings.BATCH_RETRY_S),
    )
