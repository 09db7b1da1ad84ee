"""Whatever refuses a hold has a text of its own, and says whether to come back."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from billing.contracts import (
    HoldOutcome,
    HoldRefusal,
    QuotaInTheWay,
    QuotaMetric,
    QuotaPeriod,
    QuotaScope,
)
from headrace.gateway.admission.refusals import hold_refusal

SPEND = QuotaInTheWay(
    scope=QuotaScope.PROJECT,
    end_user="",
    metric=QuotaMetric.SPEND,
    period=QuotaPeriod.MONTH,
    limit_amount=5 * 10**12,
    time_zone="Europe/Amsterdam",
    resets_at=datetime(2027, 3, 31, 22, tzinfo=UTC),
)


@pytest.mark.parametrize("refusal", list(HoldRefusal))
def test_every_refusal_is_told_in_the_clients_words(refusal: HoldRefusal) -> None:
    error = hold_refusal(HoldOutcome(uuid4(), refusal, 1, SPEND), "USD")

    assert 400 <= error.status < 600 and error.status != 500
    assert refusal.value not in error.message


def test_a_quota_says_whose_it_is_and_the_local_time_it_starts_again() -> None:
    error = hold_refusal(HoldOutcome(uuid4(), HoldRefusal.QUOTA_EXCEEDED, 1, SPEND), "USD")

    assert (error.status, error.code) == (429, "insufficient_quota")
    assert error.headers() == {"x-should-retry": "false"}
    assert error.message == (
        "You exceeded your current quota: this request may take your project over its limit of "
        "5.00 USD per month. It starts again at 2027-04-01 00:00 +0200 (Europe/Amsterdam)."
    )
