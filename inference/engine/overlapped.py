"""An engine that launches a step before it has read the one before, so that planning, text and
chunks of one step happen while the device computes the next.

Only while every running sequence just decodes and nothing waits: whatever else comes up is planned
from known tokens, one step later. A sequence that turns out to have ended leaves one row of the
step ahead unused. Made by the server for runners that can launch; otherwise as its base.
"""

from collections.abc import Callable, Collection

from inference.contracts import Finish
from inference.engine.answering.detokenizer import TokenTexts
from inference.engine.answering.grammar import Grammars
from inference.engine.drawing import check_outputs, needs_its_tokens, sequence_step, step_ahead
from inference.engine.engine import Engine
from inference.engine.scheduling.scheduler import SchedulerLimits, Share
from inference.engine.step import Launched, LaunchingRunner, StepOutput


class OverlappedEngine(Engine):
    """Continuous batching with one step in flight. Answers are those of `Engine`, draw for draw."""

    def __init__(
        self,
        runner: LaunchingRunner,
        texts: TokenTexts,
        *,
        stop_ids: Collection[int],
        limits: SchedulerLimits,
        clock: Callable[[], float],
        grammars: Grammars | None = None,
    ) -> None:
        super().__init__(
            runner, texts, stop_ids=stop_ids, limits=limits, clock=clock, grammars=grammars
        )
        self._launcher = runner
        self._ahead: tuple[list[Share], Launched] | None = None
        self.steps_ahead = 0
        """Steps that were launched before the one before had been read."""

    def _next_shares(self, now_s: float) -> list[Share]:
        if self._ahead is None:
            return super()._next_shares(now_s)
        return self._ahead[0]

    def _compute(
        self, shares: list[Share], finishes: list[Finish]
    ) -> list[tuple[Share, StepOutput]]:
        ahead, self._ahead = self._ahead, None
        try:
            launched = self._launch(shares) if ahead is None else ahead[1]
            self._launch_ahead(shares)
            outputs = launched.outputs()
            check_outputs(shares, outputs, self._runner.vocab_size)
        except Exception:  # noqa: BLE001  as the base does, which finds out whose fault it was
            self._ahead = None
            return super()._compute(shares, finishes)
        return list(zip(shares, outputs, strict=True))

    def _launch(self, shares: list[Share]) -> Launched:
        return self._launcher.launch([sequence_step(share, self._stop_ids) for share in shares])

    def _launch_ahead(self, shares: list[Share]) -> None:
        """Starts the step after `shares` if nothing but their tokens is missing for it."""
        if self._scheduler.waiting or len(shares) < self._scheduler.running:
            return
        if not all(share.draws and self._is_live(share.state) for share in shares):
            return
        going_on = [share for share in shares if _goes_on(share)]
        if any(share.drafts or needs_its_tokens(share.state) for share in going_on):
            return
        if not going_on or not self._scheduler.reserve_next([share.state for share in going_on]):
            return
        steps = [step_ahead(share, self._stop_ids) for share in going_on]
        following = [Share(share.state, 1, 0, reaches_end=True) for share in going_on]
        self._ahead = following, self._launcher.launch(steps)
        self.steps_ahead += 1


def _goes_on(share: Share) -> bool:
    """Whether another token follows the one this share draws, as far as its length says."""
    sampling = share.state.request.sampling
    assert sampling is not None
    return share.state.completion + 1 < sampling.max_tokens
