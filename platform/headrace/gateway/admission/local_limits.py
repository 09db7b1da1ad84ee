"""The minute limits inside one process: the same rules as the script's, for while Redis is away.

N processes then admit at most N times as much, and what was admitted elsewhere before is not known
here. Does no I/O and takes the clock as an argument. Called by the rate limiter.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from headrace.gateway.admission.minute_limits import (
    CONCURRENCY_WAIT_MS,
    METRICS,
    WINDOW_MS,
    Demand,
    LimitScope,
    LimitState,
    Standing,
)

WINDOWS_MAX = 20_000
"""Scopes of all organizations; the one used longest ago is forgotten first."""

_Name = tuple[UUID, str, str]


@dataclass(slots=True)
class _Window:
    admitted: "OrderedDict[str, tuple[int, Demand]]" = field(default_factory=OrderedDict)
    live: set[str] = field(default_factory=set)
    input_tokens: int = 0
    output_tokens: int = 0

    def count(self, request_id: str, at_ms: int, demand: Demand) -> None:
        self.forget(request_id)
        self.admitted[request_id] = (at_ms, demand)
        self.input_tokens += demand.input_tokens
        self.output_tokens += demand.output_tokens

    def correct(self, request_id: str, used: Demand) -> None:
        at_ms, before = self.admitted[request_id]
        self.admitted[request_id] = (at_ms, used)
        self.input_tokens += used.input_tokens - before.input_tokens
        self.output_tokens += used.output_tokens - before.output_tokens

    def forget(self, request_id: str) -> None:
        _, demand = self.admitted.pop(request_id, (0, Demand(0, 0)))
        self.input_tokens -= demand.input_tokens
        self.output_tokens -= demand.output_tokens

    def used(self, metric: str) -> int:
        return {
            "requests": len(self.admitted),
            "tokens": self.input_tokens + self.output_tokens,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "concurrency": len(self.live),
        }[metric]

    def standing(self, now_ms: int) -> Standing:
        newest = next(reversed(self.admitted.values()), None)
        return Standing(
            len(self.admitted),
            self.input_tokens,
            self.output_tokens,
            0 if newest is None else newest[0] + WINDOW_MS - now_ms,
        )

    def wait_ms(self, metric: str, needed: int, now_ms: int) -> int:
        """Until `needed` of the metric have left the window."""
        if metric == "concurrency":
            return CONCURRENCY_WAIT_MS
        freed = 0
        for at_ms, demand in self.admitted.values():
            freed += demand.of(metric)
            if freed >= needed:
                return max(1, at_ms + WINDOW_MS - now_ms)
        return WINDOW_MS


class LocalLimits:
    """The windows of one process."""

    def __init__(self) -> None:
        self._windows: OrderedDict[_Name, _Window] = OrderedDict()

    def reserve(
        self,
        organization_id: UUID,
        request_id: str,
        demand: Demand,
        scopes: Sequence[LimitScope],
        now_ms: int,
    ) -> LimitState:
        """Admits by all scopes or by none; admitted requests count from `now_ms` on.

        Replaces an earlier reservation of the same request, also by a refusal.
        """
        self.end(organization_id, request_id, scopes, None)
        windows = [self._window(organization_id, scope, now_ms) for scope in scopes]
        refused, refused_by, wait_ms = "", 0, 0
        for place, (scope, window) in enumerate(zip(scopes, windows, strict=True)):
            for metric in METRICS:
                limit = scope.limit(metric)
                if limit is None or not demand.of(metric):
                    continue
                needed = window.used(metric) + demand.of(metric) - limit
                if needed <= 0:
                    continue
                wait = window.wait_ms(metric, needed, now_ms)
                if wait > wait_ms:
                    refused, refused_by, wait_ms = metric, place, wait
        if not refused:
            for window in windows:
                window.count(request_id, now_ms, demand)
                window.live.add(request_id)
        standings = tuple(window.standing(now_ms) for window in windows)
        return LimitState(tuple(scopes), standings, refused, refused_by, wait_ms)

    def end(
        self,
        organization_id: UUID,
        request_id: str,
        scopes: Sequence[LimitScope],
        used: Demand | None,
    ) -> None:
        """Frees the place; corrects the tokens, or forgets the request when None was served."""
        for scope in scopes:
            window = self._windows.get((organization_id, scope.name, scope.subject))
            if window is None:
                continue
            window.live.discard(request_id)
            if request_id in window.admitted:
                if used is None:
                    window.forget(request_id)
                else:
                    window.correct(request_id, used)

    def _window(self, organization_id: UUID, scope: LimitScope, now_ms: int) -> _Window:
        name = (organization_id, scope.name, scope.subject)
        window = self._windows.setdefault(name, _Window())
        self._windows.move_to_end(name)
        while len(self._windows) > WINDOWS_MAX:
            self._windows.popitem(last=False)
        while window.admitted:
            oldest_id, (at_ms, _) = next(iter(window.admitted.items()))
            if at_ms > now_ms - WINDOW_MS:
                break
            window.forget(oldest_id)
        return window
