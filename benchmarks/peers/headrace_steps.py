"""Our own engine as one of the compared: in process, stepped by hand.

Run by `worker` with our own interpreter. `setting` is the weight format.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.in_process import greedy, load, watched_engine
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.tokenizer.bundle import load_bundle


class Engine:
    """One model, with the server's default limits but for the time that a step may take: no peer
    has such a target."""

    def __init__(self, model: Path, setting: str) -> None:
        bundle = load_bundle(model)
        self._engine = watched_engine(
            bundle,
            load(bundle, weight_format=setting),
            limits=SchedulerLimits(inter_token_target_ms=None),
        )
        self._requests = 0

    def steps(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Iterator[int]:
        """All prompts at once, each a request."""
        for prompt in prompts:
            self._requests += 1
            self._engine.submit(str(self._requests), prompt, greedy(new_tokens))
        while self._engine.engine.has_work:
            result = self._engine.engine.step()
            yield sum(len(chunk.token_ids) for chunk in result.chunks)
