"""What may be used in a day or a month, by whom."""

import enum
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from billing.contracts.errors import BillingError

END_USER_LENGTH_MAX = 128


class QuotaScope(enum.StrEnum):
    """Whose requests a quota counts together."""

    ORGANIZATION = "organization"
    PROJECT = "project"
    KEY = "key"
    END_USER = "end_user"


class QuotaMetric(enum.StrEnum):
    """What a quota counts; spend is in pico-units."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    SPEND = "spend"


class QuotaPeriod(enum.StrEnum):
    """From which local midnight a quota counts anew."""

    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class QuotaWanted:
    """A quota as somebody sets it.

    `scope_id` is the project's or key's. Of scope end_user, `end_user` '' is each end user by
    himself, from his first request; a named one's own quota goes before it. A hard quota refuses,
    a soft one only tells. Cached tokens that do not count are reserved all the same.
    """

    scope: QuotaScope
    metric: QuotaMetric
    period: QuotaPeriod
    limit_amount: int
    scope_id: UUID | None = None
    end_user: str = ""
    is_hard: bool = True
    counts_cached: bool = True
    recipients: tuple[str, ...] = ()
    """Mail addresses to tell beside the organization's own."""
    subject_prefix: str = ""


@dataclass(frozen=True, slots=True)
class QuotaSubject:
    """What one end user, or the whole scope ('' then), has used of a quota's window and holds."""

    end_user: str
    used_amount: int
    held_amount: int


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota in force, and where its window stands.

    `subjects` are the whole scope alone, or the end users who used most; empty before the first
    request.
    """

    quota_id: UUID
    wanted: QuotaWanted
    time_zone: str
    window_start: datetime
    resets_at: datetime
    subjects: tuple[QuotaSubject, ...]
    set_at: datetime
    set_by_kind: str
    set_by_id: UUID | None


@dataclass(frozen=True, slots=True)
class QuotaInTheWay:
    """The quota that refused a hold: whose, how much, and when it starts again."""

    scope: QuotaScope
    end_user: str
    metric: QuotaMetric
    period: QuotaPeriod
    limit_amount: int
    time_zone: str
    resets_at: datetime


@dataclass(frozen=True, slots=True)
class PreviewedPeriod:
    """A day or month as a quota would have seen it; the last one still runs."""

    start_at: datetime
    end_at: datetime
    used_amount: int
    reached_on: datetime | None
    """When the day began on which the limit would have been reached; None for never."""


@dataclass(frozen=True, slots=True)
class QuotaPreview:
    """How a limit would have worked: an estimate, since requests that it refuses use nothing, and
    those under way reserve more than they use. A request counts where it was settled."""

    wanted: QuotaWanted
    time_zone: str
    periods: tuple[PreviewedPeriod, ...]
    """The oldest first."""
    days: int
    """Days looked at, the first to the last period's."""
    days_reached: int
    """Days of which the end, or this moment, found the limit reached."""


class QuotaInvalid(BillingError):
    """A quota that makes no sense, or one too many; `param` names what is wrong."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class QuotaNotFound(BillingError):
    """No such quota in this tenant, or none of that project or key."""
