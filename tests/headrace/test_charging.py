"""Who pays for what, given how a request ended."""

from dataclasses import replace
from uuid import uuid4

import pytest

from billing.contracts import UsageCounts, UsageSource
from headrace.gateway.settling.charging import (
    Cause,
    priced,
    settlement,
    settlement_of_lost,
    settlement_of_orphan,
)
from inference.contracts import Finish, FinishReason, RefusalCode, TokenCounts

COMPUTED = TokenCounts(prompt=17_111, cached=17_102, completion=40)
DELIVERED = TokenCounts(prompt=17_111, cached=17_102, completion=12)


def finish(reason: FinishReason, sent: TokenCounts = DELIVERED) -> Finish:
    return Finish("ab", reason, COMPUTED, sent)


def counted(counts: TokenCounts) -> UsageCounts:
    return priced(counts)[0]


def charged(
    reason: FinishReason, cause: Cause | None, *, all_or_nothing: bool = False
) -> UsageCounts:
    return settlement(
        uuid4(), "m", finish(reason), DELIVERED, cause, all_or_nothing=all_or_nothing
    ).counts


def test_price_classes_are_disjoint() -> None:
    counts = counted(COMPUTED)

    assert (counts.uncached_input_tokens, counts.cached_input_tokens) == (9, 17_102)
    assert counts.prompt_tokens == 17_111


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (FinishReason.STOP, None),
        (FinishReason.LENGTH, None),
        (FinishReason.CANCELLED, Cause.CLIENT_GONE),
        (FinishReason.CANCELLED, Cause.KEY_REVOKED),
    ],
)
def test_the_engines_counts_are_charged_when_the_fault_is_not_ours(
    reason: FinishReason, cause: Cause | None
) -> None:
    assert charged(reason, cause) == counted(COMPUTED)


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (FinishReason.ERROR, None),
        (FinishReason.TIMED_OUT, None),
        (FinishReason.CANCELLED, Cause.DRAINING),
        (FinishReason.CANCELLED, Cause.TIMED_OUT),
    ],
)
def test_our_own_faults_cost_only_what_was_handed_over(
    reason: FinishReason, cause: Cause | None
) -> None:
    assert charged(reason, cause) == counted(DELIVERED)


@pytest.mark.parametrize(
    ("all_or_nothing", "expected"), [(False, counted(COMPUTED)), (True, counted(DELIVERED))]
)
def test_a_grammar_that_leads_nowhere_costs_what_was_computed_but_for_bulk_work(
    all_or_nothing: bool, expected: UsageCounts
) -> None:
    stuck = replace(finish(FinishReason.ERROR), error_code=RefusalCode.INVALID_GRAMMAR)

    settled = settlement(uuid4(), "m", stuck, DELIVERED, None, all_or_nothing=all_or_nothing)

    assert settled.counts == expected


def test_a_lost_engine_costs_what_was_handed_over() -> None:
    settled = settlement_of_lost(uuid4(), "m", DELIVERED, Cause.ENGINE_LOST)

    assert settled.counts == counted(DELIVERED)
    assert settled.finish_reason == "engine_lost"


def test_a_lost_web_process_costs_what_was_written_to_it() -> None:
    orphan = finish(FinishReason.PEER_LOST)

    assert settlement_of_orphan(uuid4(), "m", orphan, forfeited=False).counts == counted(DELIVERED)
    assert settlement_of_orphan(uuid4(), "m", orphan, forfeited=True).counts == UsageCounts()


@pytest.mark.parametrize(
    "nonsense", [TokenCounts(5, 6, 0), TokenCounts(5, 0, -1), TokenCounts(5, 0, 10**12)]
)
def test_counts_that_contradict_themselves_charge_nothing(nonsense: TokenCounts) -> None:
    assert priced(nonsense) == (UsageCounts(), UsageSource.ESTIMATED)


def test_a_cancelled_client_is_recorded_as_cancelled() -> None:
    end = settlement(
        uuid4(),
        "m",
        finish(FinishReason.CANCELLED),
        DELIVERED,
        Cause.CLIENT_GONE,
        all_or_nothing=False,
    )

    assert end.finish_reason == "cancelled"


def test_an_engine_that_drains_is_recorded_as_draining() -> None:
    drained = replace(finish(FinishReason.ERROR), error_code=RefusalCode.DRAINING)

    settled = settlement(uuid4(), "m", drained, DELIVERED, None, all_or_nothing=False)

    assert settled.finish_reason == "draining"
    assert settled.counts == counted(DELIVERED)
