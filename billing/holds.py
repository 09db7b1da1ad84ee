"""Holds: money reserved before a request reaches an engine, and settled exactly once after it.

Each function is one SQL function of sql/; all take lists, a request is a list of one and one
round trip. Never called inside another transaction, never from the event loop's thread. Called by
the gateway for its requests, and for finishes found in an engine's journal.
"""

import json
import logging
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from psycopg.types.json import Jsonb

from billing.contracts import (
    END_USER_LENGTH_MAX,
    HoldOutcome,
    HoldRefusal,
    HoldRequest,
    QuotaInTheWay,
    QuotaMetric,
    QuotaPeriod,
    QuotaScope,
    Settled,
    Settlement,
    SettlementInvalid,
)
from billing.pricing import estimate_pico
from billing.retry import call

APP_ALIAS = "default"
PART_MAX = 250
"""Items of one transaction, which keeps its accounts locked; longer lists take several."""
COUNT_MAX = 10**12
"""Tokens or milliseconds past this are a broken engine's, not a request's."""
MODEL_LENGTH_MAX = 128
FINISH_REASON_LENGTH_MAX = 32

Item = TypeVar("Item")

logger = logging.getLogger(__name__)


def hold(requests: Sequence[HoldRequest], using: str = APP_ALIAS) -> list[HoldOutcome]:
    """Reserve each request's amount and quota, or say why not; answers in the order asked.

    A refused request leaves nothing behind and does not hinder the others. The unit prices held
    are those of the quote's price rows; a quote that says others is refused as stale. Raises
    ValueError for negative counts or an id that is in the list twice.
    """
    _check_ids([request.request_id for request in requests])
    outcomes = []
    for some in _parts(requests):
        amounts = {
            request.request_id: estimate_pico(
                request.quote, request.prompt_tokens, request.output_tokens_max
            )
            for request in some
        }
        items = [_hold_item(request, amounts[request.request_id]) for request in some]
        rows = call(
            "SELECT request_id, refusal, quota FROM billing_take_holds(%s)", [Jsonb(items)], using
        )
        outcomes += [
            HoldOutcome(
                request_id=request_id,
                refusal=HoldRefusal(refusal) if refusal else None,
                amount_pico=amounts[request_id],
                quota=_quota_in_the_way(quota) if quota else None,
            )
            for request_id, refusal, quota in rows
        ]
    return outcomes


def settle(settlements: Sequence[Settlement], using: str = APP_ALIAS) -> list[Settled]:
    """Post each open hold: charge, usage event and balanced ledger transaction, at once.

    A hold that is closed already, by whomever, is left alone and answers `posted=False` with its
    charge; so does an id nobody held, with 0. Raises SettlementInvalid, before anything is
    written, when a count cannot be true.
    """
    _check_ids([settlement.request_id for settlement in settlements])
    items = [_settlement_item(settlement) for settlement in settlements]
    answers = {}
    for some in _parts(items):
        rows = call("SELECT * FROM billing_settle_holds(%s)", [Jsonb(some)], using)
        for request_id, posted, charge_pico, cost_pico in rows:
            answers[request_id] = Settled(request_id, posted, int(charge_pico))
            if cost_pico > charge_pico:
                logger.warning(
                    "request %s cost %d pico-units more than its hold: written off",
                    request_id,
                    cost_pico - charge_pico,
                )
    return [answers[settlement.request_id] for settlement in settlements]


def void(request_ids: Collection[UUID], using: str = APP_ALIAS) -> None:
    """Release holds whose requests never reached an engine: no event, no charge. Idempotent.

    Bare ids suffice: the server makes them and no client ever sends one here, and an engine's
    journal, which names refused requests, knows no tenant.
    """
    for some in _parts(list(request_ids)):
        call("SELECT billing_void_holds(%s::uuid[])", [some], using)


def renew(request_ids: Collection[UUID], using: str = APP_ALIAS) -> None:
    """Keep open holds out of the sweeper's reach; closed and unknown ids are ignored.

    Bare ids suffice, as for `void`: they are those of this process's own requests.
    """
    for some in _parts(list(request_ids)):
        call("SELECT billing_renew_holds(%s::uuid[])", [some], using)


def _parts(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """The list in transactions of bounded length; an empty list is no transaction."""
    for start in range(0, len(items), PART_MAX):
        yield items[start : start + PART_MAX]


def _check_ids(request_ids: Collection[UUID]) -> None:
    if len(set(request_ids)) != len(request_ids):
        raise ValueError("a request id is in the list twice")


def _hold_item(request: HoldRequest, amount_pico: int) -> dict[str, object]:
    quote = request.quote
    return {
        "id": str(request.request_id),
        "organization": str(request.organization_id),
        "project": str(request.project_id),
        "key": str(request.key_id),
        "tier": quote.tier.value,
        "model_asked": request.model_asked[:MODEL_LENGTH_MAX],
        "input_price": str(quote.input_price_id),
        "cached_input_price": str(quote.cached_input_price_id),
        "output_price": str(quote.output_price_id),
        "prompt_tokens": request.prompt_tokens,
        "output_tokens_max": request.output_tokens_max,
        "amount": amount_pico,
        "end_user": request.end_user[:END_USER_LENGTH_MAX],
        "tags": dict(request.tags),
    }


def _quota_in_the_way(answer: str) -> QuotaInTheWay:
    told: dict[str, Any] = json.loads(answer)  # what billing_quota_told makes
    return QuotaInTheWay(
        scope=QuotaScope(told["scope"]),
        end_user=told["end_user"],
        metric=QuotaMetric(told["metric"]),
        period=QuotaPeriod(told["period"]),
        limit_amount=int(told["limit"]),
        time_zone=told["time_zone"],
        resets_at=datetime.fromisoformat(told["resets_at"]),
    )


def _settlement_item(settlement: Settlement) -> dict[str, object]:
    counts = settlement.counts
    if counts.cache_write_tokens:
        # No engine here charges for them, and a hold has no price of theirs: never drop them.
        raise SettlementInvalid(f"request {settlement.request_id} has cache writes")
    numbers = {
        "uncached": counts.uncached_input_tokens,
        "cached": counts.cached_input_tokens,
        "output": counts.output_tokens,
        "queue_ms": settlement.queue_ms,
        "prefill_ms": settlement.prefill_ms,
        "decode_ms": settlement.decode_ms,
    }
    for name, number in numbers.items():
        if type(number) is not int or not 0 <= number <= COUNT_MAX:
            raise SettlementInvalid(f"{name} of request {settlement.request_id} is {number!r}")
    return {
        "id": str(settlement.request_id),
        "organization": (
            str(settlement.organization_id) if settlement.organization_id is not None else None
        ),
        **numbers,
        "finish_reason": settlement.finish_reason[:FINISH_REASON_LENGTH_MAX],
        "model_served": settlement.model_served[:MODEL_LENGTH_MAX],
        "source": settlement.source.value,
    }
