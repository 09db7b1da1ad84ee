"""What a quiet tenant feels of a loud one, and interactive requests of a running batch.

`python -m benchmarks.fairness`, prompts of 256 and answers of 32 tokens, default limits. The quiet
tenant sends one request at a time, each some time after the last one's end, so that it arrives in
the middle of steps as it would in life; waiting counts from there. Processor time.
"""

import random
from dataclasses import dataclass

from benchmarks.in_process import (
    THREADS,
    WatchedEngine,
    greedy,
    load,
    random_prompt,
    watched_engine,
)
from benchmarks.model import loaded_bundle
from benchmarks.report import Row, percentile, print_report
from inference.contracts import Priority
from inference.engine.step import Runner
from inference.tokenizer.bundle import Bundle

PROMPT_TOKENS = 256
NEW_TOKENS = 32
FLOOD_REQUESTS = 64
BATCH_REQUESTS = 32
QUIET_REQUESTS = 20
PAUSE_S_MAX = 1.0
ALONE_STEPS = 200
LOUD, QUIET = b"loud", b"quiet"


@dataclass(frozen=True, slots=True)
class Observed:
    """`first_token_p95_s` of the quiet tenant, the seconds that it all took, and of these the
    seconds with a request of the quiet tenant in progress; tokens that the others generated."""

    first_token_p95_s: float
    elapsed_s: float
    quiet_s: float
    others_tokens: int


class Load:
    """One engine with a quiet tenant and a constant number of other requests."""

    def __init__(
        self, watched: WatchedEngine, vocab_size: int, *, others: int, priority: Priority
    ) -> None:
        self._watched = watched
        self._vocab_size = vocab_size
        self._others = others
        self._priority = priority
        self._drawn = random.Random(8)
        self._pauses = random.Random(9)
        self._asked = 0

    def run(self, quiet_requests: int, *, others_steps: int = 0) -> Observed:
        """Until the quiet tenant has had its answers, or without one for `others_steps` steps."""
        watched = self._watched
        quiet_ids: list[str] = []
        for _ in range(self._others):
            self._submit_other()
        began_s = watched.clock()
        arrives_at_s = began_s + self._pauses.uniform(0, PAUSE_S_MAX)
        waiting_for, quiet_s, steps = "", 0.0, 0
        while len(quiet_ids) < quiet_requests or waiting_for or steps < others_steps:
            if quiet_requests and not waiting_for:
                if not watched.engine.has_work:
                    watched.clock.skip_to(arrives_at_s)
                if watched.clock() >= arrives_at_s:
                    waiting_for = f"quiet-{len(quiet_ids)}"
                    quiet_ids.append(waiting_for)
                    watched.submit(
                        waiting_for,
                        random_prompt(self._drawn, PROMPT_TOKENS, self._vocab_size),
                        greedy(NEW_TOKENS),
                        arrived_at_s=arrives_at_s,
                        fairness_key=QUIET,
                    )
            steps += 1
            for ended in watched.step():
                if ended == waiting_for:
                    waiting_for = ""
                    quiet_s += watched.clock() - watched.watches[ended].arrived_at_s
                    arrives_at_s = watched.clock() + self._pauses.uniform(0, PAUSE_S_MAX)
                else:
                    self._submit_other()
        watches = watched.watches
        firsts_s = [watches[request_id].first_token_s for request_id in quiet_ids]
        return Observed(
            percentile(firsts_s, 95) if firsts_s else 0.0,
            watched.clock() - began_s,
            quiet_s,
            sum(len(watch.token_at_s) for id_, watch in watches.items() if id_ not in quiet_ids),
        )

    def _submit_other(self) -> None:
        self._asked += 1
        self._watched.submit(
            f"other-{self._asked}",
            random_prompt(self._drawn, PROMPT_TOKENS, self._vocab_size),
            greedy(NEW_TOKENS),
            priority=self._priority,
            fairness_key=LOUD,
        )


def observed(
    bundle: Bundle,
    runner: Runner,
    *,
    quiet_requests: int,
    others: int = 0,
    priority: Priority = Priority.INTERACTIVE,
    others_steps: int = 0,
) -> Observed:
    """One run on a fresh engine."""
    watched = watched_engine(bundle, runner)
    load_ = Load(watched, bundle.vocab_size, others=others, priority=priority)
    return load_.run(quiet_requests, others_steps=others_steps)


def main() -> None:
    """Prints the table."""
    bundle = loaded_bundle()
    runner = load(bundle)
    observed(bundle, runner, quiet_requests=2)
    idle = observed(bundle, runner, quiet_requests=QUIET_REQUESTS)
    flooded = observed(bundle, runner, quiet_requests=QUIET_REQUESTS, others=FLOOD_REQUESTS)
    beside = observed(
        bundle,
        runner,
        quiet_requests=QUIET_REQUESTS,
        others=BATCH_REQUESTS,
        priority=Priority.BATCH,
    )
    alone = observed(
        bundle,
        runner,
        quiet_requests=0,
        others=BATCH_REQUESTS,
        priority=Priority.BATCH,
        others_steps=ALONE_STEPS,
    )
    alone_rate = alone.others_tokens / alone.elapsed_s
    # What the interactive requests need of the engine's time is what they took when alone.
    free = max(0.0, 1.0 - idle.quiet_s / beside.elapsed_s)
    idle_s = idle.first_token_p95_s
    rows = [
        Row(
            "quiet tenant's p95 in a flood", flooded.first_token_p95_s, "idle", idle_s, "s", "<= 2"
        ),
        Row(
            "interactive p95 beside a batch",
            beside.first_token_p95_s,
            "idle",
            idle_s,
            "s",
            "<= 1.5",
        ),
        Row(
            "batch's rate",
            beside.others_tokens / beside.elapsed_s,
            f"alone x {free:.2f} of the time",
            alone_rate * free,
            "tokens/s",
            ">= 0.8",
        ),
    ]
    title = f"Fairness: prompts of {PROMPT_TOKENS}, answers of {NEW_TOKENS}, time to first token"
    print_report(title, rows, threads=THREADS)


if __name__ == "__main__":
    main()
