"""One turn of bulk work: lease some items, run them through the port, write down what came of it.

It holds no transaction while anything is computed, and writes nothing without the item's fencing
number: whatever kills it, the next holder of the lease goes on, and a request is charged only when
its answer was stored. Called by the Celery task.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import Error as DatabaseError
from django.db import connections

from batch_jobs import items, leases
from batch_jobs.leases import ClaimedItem
from batch_jobs.old_summaries import chat_request
from batch_jobs.ports import BatchAnswer, BatchCompletion, BatchCompletionResult, CompletionPort

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PumpLimits:
    """How much one turn takes on, and how long it tries."""

    items_max: int
    lease_s: int
    lease_renewals_max: int
    attempts_max: int
    retry_s: int
    job_age_max_s: int
    summary_tokens_max: int


def pump(port: CompletionPort, limits: PumpLimits) -> int:
    """Run one turn; returns how many items were leased.

    What happens to each:
    1. answered by an earlier holder -> done, as soon as its charge is known;
    2. tried `attempts_max` times without an answer -> failed (it may be what kills its workers);
    3. else it runs: answered and charged -> done; refused for what it is -> failed; failed through
       our fault -> back to the queue.
    """
    claimed = leases.claim(limits.items_max, limits.lease_s)
    to_run = []
    for item in claimed:
        if item.state == "answered":
            _collect_charge(port, item)
        elif item.attempts > limits.attempts_max:
            items.fail(item, "attempts_exhausted", f"no answer in {limits.attempts_max} attempts")
        else:
            to_run.append(item)
    if to_run:
        with _renewed(to_run, limits):
            _run(port, to_run, limits)
    return len(claimed)


def _run(port: CompletionPort, to_run: Sequence[ClaimedItem], limits: PumpLimits) -> None:
    by_request_id = {item.request_id: item for item in to_run}

    def on_answer(answer: BatchAnswer) -> bool:
        item = by_request_id[answer.request_id]
        try:
            return items.store_answer(item, answer)
        except DatabaseError:
            logger.exception("answer of request %s not stored", answer.request_id)
            return False

    def on_result(result: BatchCompletionResult) -> None:
        item = by_request_id[result.request_id]
        try:
            _write_result(item, result, limits)
        except DatabaseError:
            # The lease runs out, and the next holder finds the item as it is.
            logger.exception("result of request %s not written", result.request_id)

    port.complete(
        [
            BatchCompletion(
                request_id=item.request_id,
                organization_id=item.organization_id,
                project_id=item.project_id,
                key_id=item.key_id,
                body=chat_request(item.model, item.document, tokens_max=limits.summary_tokens_max),
            )
            for item in to_run
        ],
        on_answer,
        on_result,
    )


def _write_result(item: ClaimedItem, result: BatchCompletionResult, limits: PumpLimits) -> None:
    if result.error_code is None:
        written = items.finish(item, result.charge_pico)
    elif result.deferred and not _is_old(item, limits):
        written = items.defer(item, after_s=limits.retry_s)
    elif result.retryable and not result.deferred and item.attempts < limits.attempts_max:
        written = items.retry(item, after_s=limits.retry_s)
    else:
        written = items.fail(item, result.error_code, result.error_message or result.error_code)
    if not written:
        logger.warning("request %s was superseded: its result changes nothing", item.request_id)


def _collect_charge(port: CompletionPort, item: ClaimedItem) -> None:
    """Close an item that an earlier holder stored; while its hold is open the lease runs on."""
    charge_pico = port.charge_of(item.organization_id, item.request_id)
    if charge_pico is not None:
        items.finish(item, charge_pico)


def _is_old(item: ClaimedItem, limits: PumpLimits) -> bool:
    return datetime.now(UTC) - item.job_created_at > timedelta(seconds=limits.job_age_max_s)


@contextmanager
def _renewed(held: Sequence[ClaimedItem], limits: PumpLimits) -> Iterator[None]:
    """Renew the leases from a thread while the block runs, at most `lease_renewals_max` times."""
    ended = threading.Event()

    def renew() -> None:
        try:
            for _ in range(limits.lease_renewals_max):
                if ended.wait(limits.lease_s / 3):
                    return
                try:
                    leases.renew(held, limits.lease_s)
                except DatabaseError:
                    logger.exception("leases of %d items not renewed", len(held))
        finally:
            connections.close_all()

    thread = threading.Thread(target=renew, name="lease-renewal", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
