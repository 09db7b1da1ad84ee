"""What happens to a leased item: answered, done, back in the queue or failed.

Each function is one transaction in the tenant's scope and changes nothing unless the fencing
number still matches; it says so with False. A job's totals move with its items' ends, so they
never drift. Called by the pump only.
"""

from datetime import timedelta
from typing import Any

from django.db.models import Case, F, Func, Value, When
from django.db.models.functions import Now

from batch_jobs.leases import ClaimedItem
from batch_jobs.models import SummaryItem, SummaryJob
from batch_jobs.ports import BatchAnswer
from tenants.facade import TenantQuerySet, tenant_scope

ERROR_MESSAGE_CHARS_MAX = 2000


def store_answer(item: ClaimedItem, answer: BatchAnswer) -> bool:
    """Keep a complete answer, before it is charged. False: the attempt was superseded."""
    with tenant_scope(item.organization_id):
        return _move(
            item,
            SummaryItem.State.LEASED,
            state=SummaryItem.State.ANSWERED,
            # PostgreSQL's text holds everything but NUL.
            summary=answer.text.replace("\0", "\N{REPLACEMENT CHARACTER}"),
            prompt_tokens=answer.prompt_tokens,
            cached_tokens=answer.cached_tokens,
            completion_tokens=answer.completion_tokens,
        )


def finish(item: ClaimedItem, charge_pico: int) -> bool:
    """Close an answered item with what its request was charged."""
    with tenant_scope(item.organization_id):
        closed = _end(
            item,
            SummaryItem.State.ANSWERED,
            state=SummaryItem.State.DONE,
            charge_pico=charge_pico,
        )
        if closed:
            _count(item, items_done=1, charge_pico=charge_pico)
        return closed


def fail(item: ClaimedItem, code: str, message: str) -> bool:
    """Close an item that got no answer; nothing was charged for it."""
    with tenant_scope(item.organization_id):
        closed = _end(
            item,
            SummaryItem.State.LEASED,
            state=SummaryItem.State.FAILED,
            error_code=code,
            error_message=message[:ERROR_MESSAGE_CHARS_MAX],
        )
        if closed:
            _count(item, items_failed=1)
        return closed


def retry(item: ClaimedItem, *, after_s: int) -> bool:
    """Give an item whose attempt failed back to the queue."""
    with tenant_scope(item.organization_id):
        return _move(item, SummaryItem.State.LEASED, **_back_in_queue(after_s))


def defer(item: ClaimedItem, *, after_s: int) -> bool:
    """Give an item that never reached an engine back: this was no attempt, and left no request."""
    with tenant_scope(item.organization_id):
        return _move(
            item,
            SummaryItem.State.LEASED,
            **_back_in_queue(after_s),
            attempts=item.attempts - 1,
            request_ids=Func(F("request_ids"), Value(item.request_id), function="array_remove"),
        )


def _back_in_queue(after_s: int) -> dict[str, Any]:
    return {
        "state": SummaryItem.State.QUEUED,
        "lease_expires_at": None,
        "retry_at": Now() + timedelta(seconds=after_s),
    }


def _held(item: ClaimedItem, state: SummaryItem.State) -> TenantQuerySet[SummaryItem]:
    return SummaryItem.objects.get_queryset().filter(
        id=item.item_id, lease_token=item.lease_token, request_id=item.request_id, state=state
    )


def _move(item: ClaimedItem, source: SummaryItem.State, **changes: Any) -> bool:
    """The guarded transition; `changes` are column values or expressions."""
    return _held(item, source).update(**changes) == 1


def _end(item: ClaimedItem, source: SummaryItem.State, **changes: Any) -> bool:
    # The document is the tenant's data and of no use any more.
    return _move(item, source, document=None, lease_expires_at=None, ended_at=Now(), **changes)


def _count(
    item: ClaimedItem, *, items_done: int = 0, items_failed: int = 0, charge_pico: int = 0
) -> None:
    is_last = F("items_done") + F("items_failed") + 1
    SummaryJob.objects.filter(id=item.job_id).update(
        items_done=F("items_done") + items_done,
        items_failed=F("items_failed") + items_failed,
        charge_pico=F("charge_pico") + charge_pico,
        completed_at=Case(When(items_total=is_last, then=Now()), default=None),
    )
