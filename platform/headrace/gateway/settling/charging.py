"""What a request is charged for, given how it ended. Pure.

The engine's counts are the truth for every regular end, for a client that left and for a grammar
that leads nowhere. When the fault is ours, only what was handed to the client's socket is charged,
and nothing for an answer that was to be delivered whole (a bulk item, an unstreamed response).
"""

import enum
from uuid import UUID

import structlog

from billing.contracts import Settlement, UsageCounts, UsageSource
from billing.facade import counts_of
from inference.contracts import Finish, FinishReason, RefusalCode, TokenCounts

log = structlog.get_logger(__name__)


class Cause(enum.StrEnum):
    """Why a request was ended before the engine was done with it."""

    CLIENT_GONE = "client_gone"
    KEY_REVOKED = "key_revoked"
    DRAINING = "draining"
    TIMED_OUT = "timed_out"
    ENGINE_LOST = "engine_lost"
    FAULT = "fault"
    """Something of ours broke while the request was under way."""
    SUPERSEDED = "superseded"
    """A bulk answer that came after its lease had passed to somebody else."""


OURS = frozenset(
    {Cause.DRAINING, Cause.TIMED_OUT, Cause.ENGINE_LOST, Cause.FAULT, Cause.SUPERSEDED}
)
REQUEST_TOKENS_MAX = 10**9
REGULAR = frozenset({FinishReason.STOP, FinishReason.LENGTH})
FAILED = frozenset({FinishReason.ERROR, FinishReason.TIMED_OUT})
"""Ends that the engine made, for reasons that are not the client's."""


def priced(counts: TokenCounts) -> tuple[UsageCounts, UsageSource]:
    """The engine's cumulative counts as disjoint price classes.

    Counts that cannot be (cached above prompt, negative, astronomic) are a broken engine's: they
    charge nothing, and the event says `estimated`, where an operator will look for them.
    """
    possible = (
        0 <= counts.cached <= counts.prompt
        and counts.completion >= 0
        and counts.prompt + counts.completion <= REQUEST_TOKENS_MAX
    )
    if not possible:
        log.error("impossible counts charge nothing", counts=counts)
        return UsageCounts(), UsageSource.ESTIMATED
    usage = counts_of(counts.prompt, counts.cached, counts.completion)
    return usage, UsageSource.MEASURED


def is_ours(finish: Finish, cause: Cause | None) -> bool:
    """Whether the end is our fault, so that only what was handed over is charged."""
    # A grammar that leads nowhere is the client's own, however late the engine sees it.
    failed = finish.reason in FAILED and finish.error_code != RefusalCode.INVALID_GRAMMAR
    return failed or cause in OURS


def settlement(
    request_id: UUID,
    model: str,
    finish: Finish,
    delivered: TokenCounts,
    cause: Cause | None,
    *,
    all_or_nothing: bool,
) -> Settlement:
    """How to settle a request that the engine finished, possibly because of `cause`.

    `all_or_nothing` is bulk work: what did not come to its regular end is worth nothing to its
    owner and runs again.
    """
    ours = is_ours(finish, cause) or (all_or_nothing and finish.reason not in REGULAR)
    reason = finish.reason.value
    if cause is not None and finish.reason is FinishReason.CANCELLED:
        reason = "cancelled" if cause is Cause.CLIENT_GONE else cause.value
    if finish.error_code == RefusalCode.DRAINING:
        # The engine's own drain, which a client cannot tell from the web's.
        reason = Cause.DRAINING.value
    counts, source = priced(delivered if ours else finish.counts)
    return Settlement(
        request_id=request_id,
        counts=counts,
        finish_reason=reason,
        model_served=model,
        source=source,
        queue_ms=finish.timings.queue_ms,
        prefill_ms=finish.timings.prefill_ms,
        decode_ms=finish.timings.decode_ms,
    )


def settlement_of_lost(
    request_id: UUID, model: str, delivered: TokenCounts, cause: Cause
) -> Settlement:
    """How to settle a request whose engine is gone: by what its client had been handed."""
    counts, source = priced(delivered)
    return Settlement(
        request_id=request_id,
        counts=counts,
        finish_reason=cause.value,
        model_served=model,
        source=source if delivered.prompt else UsageSource.ESTIMATED,
    )


def settlement_of_orphan(
    request_id: UUID, model: str, finish: Finish, *, forfeited: bool
) -> Settlement:
    """How to settle a finish whose web or worker process died: by what had been written to it.

    `forfeited` bulk items delivered nothing to their owner and run again under a new id.
    """
    counts, source = priced(TokenCounts() if forfeited else finish.sent)
    return Settlement(
        request_id=request_id,
        counts=counts,
        finish_reason=finish.reason.value,
        model_served=model,
        source=source,
        queue_ms=finish.timings.queue_ms,
        prefill_ms=finish.timings.prefill_ms,
        decode_ms=finish.timings.decode_ms,
    )
