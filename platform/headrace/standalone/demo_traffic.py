"""What acme asked for in the demo's month: pure, and the same for a seed each time.

Strands of traffic with the shapes that people know: office hours, evenings, batch nights, weekends,
growth, one bad afternoon, and one end user who asks for more than all the others. Knows no ids and
no money. Called by `demo_history`.
"""

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

DAY = timedelta(days=1)
SATURDAY = 5
GROWTH = 0.7
"""The last day has this much more than the first, each measured by the middle."""
BAD_DAYS_AGO = 9
"""Or the working day before that."""
BAD_HOURS = range(13, 17)
"""In UTC, of the bad day: an engine goes away and the others have its work to do."""
BAD_SHARE = 0.16
"""Of the requests of those hours that end in a fault; of the others, FAULT_SHARE do."""
FAULT_SHARE = 0.003
BAD_DELAY = 12
CANCELLED_SHARE = 0.012
END_USERS = 60
HEAVY_USER_SHARE = 0.2
MS = timedelta(milliseconds=1)

OFFICE = (0, 0, 0, 0, 0, 1, 3, 9, 14, 17, 16, 12, 13, 17, 17, 14, 10, 6, 4, 3, 2, 2, 1, 0)
EVENING = (3, 2, 1, 1, 1, 2, 4, 7, 8, 7, 6, 8, 10, 8, 7, 7, 9, 12, 15, 17, 18, 15, 10, 6)
NIGHT = (0, 34, 40, 26, 6, *([0] * 19))


@dataclass(frozen=True, slots=True)
class Speed:
    """Of an engine, in the middle; each request has a luck of its own."""

    queue_ms: float
    prefill_tokens_per_s: float
    decode_ms_per_token: float


@dataclass(frozen=True, slots=True)
class Strand:
    """One kind of traffic. Token counts are medians; shares are of 1."""

    key: str
    is_large: bool
    is_batch: bool
    share: float
    hours: tuple[int, ...]
    weekend: float
    prompt_tokens: int
    cached_share: float
    output_tokens: int
    output_tokens_max: int
    speed: Speed
    has_end_users: bool = False
    first_days_share: float = 1.0
    """Of the whole time, how long it goes on."""
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


SMALL_SPEED = Speed(queue_ms=18, prefill_tokens_per_s=9_000, decode_ms_per_token=7)
LARGE_SPEED = Speed(queue_ms=45, prefill_tokens_per_s=16_000, decode_ms_per_token=17)
BATCH_SPEED = Speed(queue_ms=6_000, prefill_tokens_per_s=12_000, decode_ms_per_token=24)
PLANS = ("free", "free", "pro", "pro", "pro", "enterprise")
STRANDS = (
    Strand(
        *("web widget", False, False, 0.34, OFFICE, 0.45, 1_700, 0.66, 170, 512, SMALL_SPEED),
        has_end_users=True,
        tags={"feature": ("chat",), "plan": PLANS},
    ),
    Strand(
        *("mobile app", False, False, 0.2, EVENING, 1.15, 1_300, 0.6, 120, 512, SMALL_SPEED),
        has_end_users=True,
        tags={"feature": ("chat", "chat", "suggestions"), "plan": PLANS},
    ),
    Strand(
        *("search api", True, False, 0.22, OFFICE, 0.12, 13_000, 0.52, 330, 1_024, LARGE_SPEED),
        has_end_users=True,
        tags={"feature": ("answers", "answers", "citations"), "plan": PLANS[2:]},
    ),
    Strand(
        *("search staging", True, False, 0.02, OFFICE, 0.0, 9_000, 0.4, 260, 1_024, LARGE_SPEED),
        tags={"feature": ("answers",)},
    ),
    Strand(
        *("nightly batch", True, True, 0.19, NIGHT, 0.25, 16_000, 0.42, 520, 1_024, BATCH_SPEED),
        tags={"feature": ("summaries",)},
    ),
    Strand(
        *("trial notebook", True, False, 0.03, OFFICE, 0.3, 6_000, 0.3, 400, 1_024, LARGE_SPEED),
        first_days_share=0.4,
        tags={"feature": ("experiments",)},
    ),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as it came and as it ended."""

    strand: Strand
    held_at: datetime
    uncached_tokens: int
    cached_tokens: int
    output_tokens: int
    finish_reason: str
    queue_ms: int
    prefill_ms: int
    decode_ms: int
    end_user: str
    tags: Mapping[str, str]

    @property
    def settled_at(self) -> datetime:
        """When its last token was out."""
        return self.held_at + (self.queue_ms + self.prefill_ms + self.decode_ms) * MS


def traffic(until: datetime, days: int, requests: int, seed: int) -> list[Asked]:
    """About so many requests of the days before `until`, all of them over by then, in order."""
    chance = random.Random(seed)  # noqa: S311 - a picture, not a secret
    since = until - days * DAY
    bad_day = until.date() - BAD_DAYS_AGO * DAY
    while bad_day.weekday() >= SATURDAY:
        bad_day -= DAY
    asked = [
        one
        for strand in STRANDS
        for one in _of_strand(strand, since, days, requests, bad_day, chance)
        if since <= one.held_at and one.settled_at < until
    ]
    return sorted(asked, key=lambda one: one.held_at)


def _of_strand(
    strand: Strand, since: datetime, days: int, requests: int, bad_day: date, chance: random.Random
) -> Iterator[Asked]:
    midnight = datetime.combine(since.date(), time(), UTC)
    weeks_mean = (5 + 2 * strand.weekend) / 7
    daily = requests * strand.share / days / weeks_mean
    for day in range(days + 1):
        at = day / days
        if at > strand.first_days_share:
            return
        today = midnight + day * DAY
        expected = daily * (1 + GROWTH * (at - 0.5)) * math.exp(chance.gauss(0, 0.09))
        if today.weekday() >= SATURDAY:
            expected *= strand.weekend
        for hour, weight in enumerate(strand.hours):
            count = int(expected * weight / sum(strand.hours) + chance.random())
            is_bad = today.date() == bad_day and hour in BAD_HOURS
            for _ in range(count):
                held_at = today + hour * timedelta(hours=1) + chance.randrange(3_600_000) * MS
                yield _request(strand, held_at, is_bad, chance)


def _request(strand: Strand, held_at: datetime, is_bad: bool, chance: random.Random) -> Asked:
    def spread(middle: float, sigma: float) -> float:
        return middle * math.exp(chance.gauss(0, sigma))

    prompt_tokens = min(int(spread(strand.prompt_tokens, 0.45)) + 20, 4 * strand.prompt_tokens)
    cached_share = min(max(chance.gauss(strand.cached_share, 0.14), 0.0), 0.95)
    if chance.random() < 0.08:  # the first of a conversation finds nothing
        cached_share = 0.0
    cached_tokens = int(prompt_tokens * cached_share) // 16 * 16  # whole blocks
    output_tokens = min(int(spread(strand.output_tokens, 0.55)) + 1, strand.output_tokens_max)
    finish_reason = "length" if output_tokens == strand.output_tokens_max else "stop"
    queue_ms = spread(strand.speed.queue_ms, 0.8) * (BAD_DELAY if is_bad else 1)
    if chance.random() < (BAD_SHARE if is_bad else FAULT_SHARE):
        finish_reason = chance.choice(("engine_lost", "timed_out"))
        output_tokens = int(output_tokens * chance.random() ** 2)
    elif not strand.is_batch and chance.random() < CANCELLED_SHARE:
        finish_reason = "cancelled"
        output_tokens = int(output_tokens * chance.random())
    uncached_tokens = prompt_tokens - cached_tokens
    prefill_s = uncached_tokens / strand.speed.prefill_tokens_per_s
    return Asked(
        strand=strand,
        held_at=held_at,
        uncached_tokens=uncached_tokens,
        cached_tokens=cached_tokens,
        output_tokens=output_tokens,
        finish_reason=finish_reason,
        queue_ms=int(queue_ms),
        prefill_ms=int(spread(1_000 * prefill_s + 12, 0.3) * (2 if is_bad else 1)),
        decode_ms=int(output_tokens * spread(strand.speed.decode_ms_per_token, 0.18)),
        end_user=_end_user(chance) if strand.has_end_users else "",
        tags={name: chance.choice(values) for name, values in strand.tags.items()},
    )


def _end_user(chance: random.Random) -> str:
    """One of END_USERS, the first ones more often, and one of them far more than the others."""
    if chance.random() < HEAVY_USER_SHARE:
        return "user-1042"
    return f"user-{1000 + int(END_USERS * chance.random() ** 1.5)}"
