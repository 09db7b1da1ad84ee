"""Minute limits as values: whose they are, where they stand, and what a client is told of them.

Pure: the decision itself is made in Redis (`rate_limits`) or, while Redis is away, in this process
(`local_limits`). Both answer with what each scope has used; what that means is said here once.
"""

import hashlib
from dataclasses import dataclass

from headrace import errors
from headrace.gateway.orders import Caller
from tenants.contracts import NO_LIMITS, MinuteLimits

WINDOW_MS = 60_000
CONCURRENCY_WAIT_MS = 1_000
"""What a client is told to wait for a place: nobody knows when one comes free."""
METRICS = ("requests", "tokens", "input_tokens", "output_tokens", "concurrency")
"""In the order of the fields of MinuteLimits, and of the limits that the script takes."""
_WHOSE = {
    "organization": "your organization",
    "project": "your project",
    "key": "your API key",
    "end_user": "this end user",
}


@dataclass(frozen=True, slots=True)
class Demand:
    """Tokens that one request may use, or has used."""

    input_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        """Both together."""
        return self.input_tokens + self.output_tokens

    def of(self, metric: str) -> int:
        """How much of one metric the request takes."""
        return {
            "tokens": self.tokens,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
        }.get(metric, 1)


@dataclass(frozen=True, slots=True)
class LimitScope:
    """Somebody whose requests are counted together: a name for people, a name for the counters."""

    name: str
    subject: str
    limits: MinuteLimits

    def limit(self, metric: str) -> int | None:
        """The most of one metric; None is no limit."""
        limits = self.limits
        return {
            "requests": limits.requests_max,
            "tokens": limits.tokens_max,
            "input_tokens": limits.input_tokens_max,
            "output_tokens": limits.output_tokens_max,
            "concurrency": limits.concurrent_max,
        }[metric]


@dataclass(frozen=True, slots=True)
class Standing:
    """What one scope has used of its minute, this request included if it was admitted.

    `reset_ms` is how long until all of it is forgotten.
    """

    requests: int
    input_tokens: int
    output_tokens: int
    reset_ms: int

    def used(self, metric: str) -> int:
        """Of requests or tokens."""
        return {
            "requests": self.requests,
            "tokens": self.input_tokens + self.output_tokens,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
        }[metric]


@dataclass(frozen=True, slots=True)
class LimitState:
    """Where all scopes of a request stand after a decision; `refused` is '' when admitted.

    Of several scopes in the way, `refused_by` is the one that is so longest.
    """

    scopes: tuple[LimitScope, ...]
    standings: tuple[Standing, ...]
    refused: str = ""
    refused_by: int = 0
    wait_ms: int = 0

    def headers(self) -> dict[str, str]:
        """OpenAI's x-ratelimit headers, of the scope that binds; durations in Go's notation."""
        headers: dict[str, str] = {}
        for metric in METRICS[:-1]:
            place = self._binding(metric)
            if place is None:
                continue
            kind = metric.replace("_", "-")
            headers |= {
                f"x-ratelimit-limit-{kind}": str(self.scopes[place].limit(metric)),
                f"x-ratelimit-remaining-{kind}": str(self._left(place, metric)),
                f"x-ratelimit-reset-{kind}": go_duration(self.standings[place].reset_ms),
            }
        return headers

    def _binding(self, metric: str) -> int | None:
        if self.refused == metric:
            return self.refused_by
        limited = [
            place for place, scope in enumerate(self.scopes) if scope.limit(metric) is not None
        ]
        return min(limited, key=lambda place: self._left(place, metric), default=None)

    def _left(self, place: int, metric: str) -> int:
        limit = self.scopes[place].limit(metric)
        assert limit is not None
        return max(0, limit - self.standings[place].used(metric))


def scopes_of(caller: Caller, end_user: str) -> tuple[LimitScope, ...]:
    """Whose minutes a request takes part of; none for bulk work, and none without a limit."""
    if caller.limits is None:
        return ()
    scopes = [
        LimitScope("organization", "", caller.limits.organization),
        LimitScope("project", caller.project_id.hex, caller.limits.project),
        LimitScope("key", caller.key_id.hex, caller.limits.key),
    ]
    if end_user:
        # Hashed: Redis holds no names of people.
        named = hashlib.sha256(f"{caller.key_id.hex}:{end_user}".encode()).hexdigest()
        scopes.append(LimitScope("end_user", named, caller.limits.end_user))
    return tuple(scope for scope in scopes if scope.limits != NO_LIMITS)


def go_duration(milliseconds: int) -> str:
    """Milliseconds as Go prints durations: 20ms, 1.5s, 1m0s."""
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest_ms = divmod(milliseconds, 60_000)
    seconds = f"{rest_ms / 1000:g}s"
    return f"{minutes}m{seconds}" if minutes else seconds


def refusal(state: LimitState, demand: Demand) -> errors.ApiError:
    """The 429 for a refused reservation, in the name of the scope that refused."""
    scope, metric = state.scopes[state.refused_by], state.refused
    limit = scope.limit(metric)
    assert limit is not None
    whose, what = _WHOSE[scope.name], metric.replace("_", " ")
    if metric == "concurrency":
        text = f"Too many requests at once: {limit} is the limit of {whose}."
    elif demand.of(metric) > limit:
        text = (
            f"Request too large: it may use {demand.of(metric)} {what}, the limit of {whose} is "
            f"{limit} per minute."
        )
    else:
        text = f"Limit of {limit} {what} per minute of {whose} reached."
    fits_later = metric == "concurrency" or demand.of(metric) <= limit
    advice = (
        f"Please try again in {go_duration(state.wait_ms)}."
        if fits_later
        else "Lower max_completion_tokens or shorten the prompt."
    )
    kind = "tokens" if metric.endswith("tokens") else "requests"
    error = errors.rate_limited(kind, f"{text} {advice}", state.wait_ms / 1000)
    if not fits_later:
        error.should_retry = False
    error.extra_headers = state.headers()
    return error
