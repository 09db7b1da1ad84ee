"""The limits of acme in the demo: such that its meters stand somewhere, whatever the day is.

Set when the history is written, as of now: a limit counts the window that runs, and tells nobody of
days that are past. Called by `demo_history`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from billing import facade as billing
from billing.contracts import PICO, QuotaMetric, QuotaPeriod, QuotaScope, QuotaWanted
from headrace.standalone.demo_traffic import Asked
from tenants.contracts import Actor

BUDGET_USED_PERCENT = 72
PROJECT_USED_PERCENT = 83
"""Past the mark at which a meter changes its colour."""
DAYS_OF_MONTH = 30
BUDGET_STEP_PICO = 5 * PICO
TOKENS_STEP = 100_000
USER_DAY_TOKENS = 500_000
EARLY_SHARE = 5
"""A month with less than a fifth of the usual in it is too young to measure a limit by."""


@dataclass(frozen=True, slots=True)
class Used:
    """A request, and what it came to."""

    asked: Asked
    cost_pico: int

    @property
    def tokens(self) -> int:
        """All of them, cached ones too."""
        return self.asked.uncached_tokens + self.asked.cached_tokens + self.asked.output_tokens


def set_limits(owner: Actor, project_id: UUID, used: Sequence[Used]) -> None:
    """A budget that refuses, and two limits that only tell: of a project, and of each end user."""
    month_start = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    month = [one for one in used if one.asked.held_at >= month_start]
    days = max(1, len({one.asked.held_at.date() for one in used}))
    search, search_month = (_of_search(some) for some in (used, month))
    for wanted in (
        QuotaWanted(
            QuotaScope.ORGANIZATION,
            QuotaMetric.SPEND,
            QuotaPeriod.MONTH,
            limit_for(
                sum(one.cost_pico for one in month),
                sum(one.cost_pico for one in used) * DAYS_OF_MONTH // days,
                BUDGET_USED_PERCENT,
                BUDGET_STEP_PICO,
            ),
        ),
        QuotaWanted(
            QuotaScope.PROJECT,
            QuotaMetric.TOKENS,
            QuotaPeriod.MONTH,
            limit_for(
                sum(one.tokens for one in search_month),
                sum(one.tokens for one in search) * DAYS_OF_MONTH // days,
                PROJECT_USED_PERCENT,
                TOKENS_STEP,
            ),
            scope_id=project_id,
            is_hard=False,
        ),
        QuotaWanted(
            QuotaScope.END_USER,
            QuotaMetric.TOKENS,
            QuotaPeriod.DAY,
            USER_DAY_TOKENS,
            is_hard=False,
        ),
    ):
        billing.set_quota(owner, wanted)


def limit_for(used: int, usual: int, percent: int, step: int) -> int:
    """Of which so many percent are used, in whole steps; early in a month, what is usual in one."""
    limit = usual if used * EARLY_SHARE < usual else used * 100 // percent
    return max(1, -(-limit // step)) * step


def _of_search(used: Sequence[Used]) -> list[Used]:
    return [one for one in used if one.asked.strand.key.startswith("search")]
