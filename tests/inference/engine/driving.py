"""Drives an engine over the stub runner and collects what each request got."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from inference.contracts import Finish, GenerationRequest, Priority, SamplingParams, TokenCounts
from inference.engine.answering.detokenizer import TokenTexts
from inference.engine.answering.grammar import Grammars
from inference.engine.drafting.speculation import Drafter
from inference.engine.engine import Engine, StepResult
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.engine.step import Runner
from tests.inference.engine.stub_runner import Letters

STEPS_MAX = 20_000


@dataclass
class Answers:
    """Everything an engine has said, by request id."""

    token_ids: dict[str, list[int]] = field(default_factory=dict)
    pieces: dict[str, list[str]] = field(default_factory=dict)
    finishes: dict[str, Finish] = field(default_factory=dict)
    counts: dict[str, TokenCounts] = field(default_factory=dict)

    def take(self, result: StepResult) -> None:
        for chunk in result.chunks:
            assert chunk.request_id not in self.finishes, "a chunk after the finish"
            self.token_ids.setdefault(chunk.request_id, []).extend(chunk.token_ids)
            self.pieces.setdefault(chunk.request_id, []).append(chunk.text)
            self._check_counts(chunk.request_id, chunk.counts)
        for finish in result.finishes:
            self.take_finish(finish)

    def take_finish(self, finish: Finish) -> None:
        assert finish.request_id not in self.finishes, "finished twice"
        self.finishes[finish.request_id] = finish
        self._check_counts(finish.request_id, finish.counts)

    def text(self, request_id: str) -> str:
        return "".join(self.pieces.get(request_id, []))

    def _check_counts(self, request_id: str, counts: TokenCounts) -> None:
        before = self.counts.get(request_id)
        assert counts.completion == len(self.token_ids.get(request_id, []))
        assert counts == TokenCounts() or 0 <= counts.cached < counts.prompt
        if before is not None:
            assert (counts.prompt, counts.cached) == (before.prompt, before.cached)
            assert counts.completion >= before.completion
        self.counts[request_id] = counts


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def make_engine(
    runner: Runner,
    *,
    limits: SchedulerLimits | None = None,
    texts: TokenTexts | None = None,
    stop_ids: Sequence[int] = (),
    clock: Callable[[], float] | None = None,
    grammars: Grammars | None = None,
    drafter: Drafter | None = None,
) -> Engine:
    return Engine(
        runner,
        texts or Letters(),
        stop_ids=stop_ids,
        limits=limits or SchedulerLimits(),
        clock=clock or Clock(),
        grammars=grammars,
        drafter=drafter,
    )


def advance(engine: Engine, answers: Answers, steps: int) -> None:
    """Runs so many steps, checking the pool after each."""
    for _ in range(steps):
        answers.take(engine.step())
        engine.check()


def chunk_ids(result: StepResult) -> set[str]:
    """Which requests got a token."""
    return {chunk.request_id for chunk in result.chunks}


def run_to_end(engine: Engine, answers: Answers | None = None) -> Answers:
    """Steps until nothing is left, checking the pool after each step."""
    answers = answers or Answers()
    for _ in range(STEPS_MAX):
        if not engine.has_work:
            return answers
        answers.take(engine.step())
        engine.check()
    raise AssertionError(f"still working after {STEPS_MAX} steps")


def request(
    request_id: str,
    prompt: Sequence[int],
    max_tokens: int = 8,
    *,
    stop: tuple[str, ...] = (),
    stop_token_ids: tuple[int, ...] = (),
    ignore_eos: bool = False,
    salt: bytes = b"",
    priority: Priority = Priority.INTERACTIVE,
) -> GenerationRequest:
    return GenerationRequest(
        request_id,
        (tuple(prompt),),
        SamplingParams(
            max_tokens=max_tokens,
            temperature=0.0,
            stop=stop,
            stop_token_ids=stop_token_ids,
            ignore_eos=ignore_eos,
        ),
        cache_salt=salt,
        priority=priority,
    )
