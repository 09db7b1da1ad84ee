"""A grammar that would stop or kill the engine is refused; nobody else notices its trial."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from inference.contracts import FinishReason, Grammar, GrammarKind, RefusalCode, TokenCounts
from inference.engine.answering.llguidance_grammars import LlguidanceGrammars
from inference.engine.step import SampleSpec, SequenceStep
from inference.server import grammar_trials
from inference.server.grammar_trials import TOO_MUCH, TRIALS_MAX, WAITING_MAX
from inference.tokenizer.bundle import Bundle
from tests.inference.server.running_server import (
    WAIT_S,
    GatedRunner,
    read_all,
    request,
    running_server,
    until,
)


def schema(source: object) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(source))


MULTIPLES = {f"p{i}": {"type": "integer", "multipleOf": 99991 + 2 * i} for i in range(16)}
LONG = schema({"type": "object", "properties": MULTIPLES})
LARGE = schema({"allOf": [{"type": "string", "pattern": f"^.*{i:x}.{{20}}$"} for i in range(100)]})
GOOD = schema({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]})


class Obedient(GatedRunner):
    """Draws the first token that a grammar allows."""

    def _draw_after(self, step: SequenceStep, known: int, spec: SampleSpec) -> int:
        if not spec.allowed:
            return super()._draw_after(step, known, spec)
        lowest = int.from_bytes(spec.allowed, "little")
        return (lowest & -lowest).bit_length() - 1


@pytest.fixture(scope="module")
def grammars(bundle: Bundle) -> LlguidanceGrammars:
    return LlguidanceGrammars(bundle)


@pytest.fixture
def runner(bundle: Bundle) -> Obedient:
    runner = Obedient(vocab_size=bundle.vocab_size)
    runner.let_run()
    return runner


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        pytest.param(LONG, TOO_MUCH, id="40-s"),
        pytest.param(LARGE, TOO_MUCH, id="7-gb"),
        pytest.param(schema({"$ref": "#"}), "allows no beginning", id="loop"),
        pytest.param(schema({"type": 5}), "", id="invalid"),
    ],
)
def test_a_grammar_that_is_too_much_is_refused_while_its_neighbour_goes_on(
    tmp_path: Path, grammars: LlguidanceGrammars, runner: Obedient, grammar: Grammar, message: str
) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path, runner, grammars=grammars) as running:
            client = await running.client()
            refused = asyncio.create_task(read_all(client.submit(request("bad", grammar=grammar))))
            _, neighbour = await read_all(client.submit(request("good", max_tokens=100)))
            was_waiting = not refused.done()
            _, finish = await refused
            _, again = await read_all(client.submit(request("again", grammar=grammar)))

            assert neighbour.counts.completion == 100
            assert was_waiting
            assert finish.reason is again.reason is FinishReason.REFUSED
            assert finish.error_code == again.error_code == RefusalCode.INVALID_GRAMMAR
            assert finish.error_message == again.error_message
            assert message in (finish.error_message or "")
            assert running.checks is not None
            assert running.checks.trials == 1

    asyncio.run(scenario())


def test_a_grammar_is_tried_once_for_all_that_bring_it(
    tmp_path: Path, grammars: LlguidanceGrammars, runner: Obedient
) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path, runner, grammars=grammars) as running:
            client = await running.client()
            asked = [request(f"r{i}", max_tokens=1, grammar=GOOD) for i in range(100)]
            answers = await asyncio.gather(*[read_all(client.submit(r)) for r in asked])
            answers.append(await read_all(client.submit(request("r", max_tokens=1, grammar=GOOD))))

            assert {finish.reason for _, finish in answers} == {FinishReason.LENGTH}
            assert running.checks is not None
            assert running.checks.trials == 1

    asyncio.run(scenario())


def test_a_request_aborted_during_its_check_is_never_computed(
    tmp_path: Path, grammars: LlguidanceGrammars, runner: Obedient
) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path, runner, grammars=grammars) as running:
            client = await running.client()
            aborted = client.submit(request("aborted", max_tokens=1, grammar=GOOD))
            waiting = client.submit(request("waiting", max_tokens=1, grammar=GOOD))
            aborted.abort()
            aborted.abort()

            _, finish = await read_all(aborted)
            _, neighbour = await read_all(waiting)

            assert finish.reason is FinishReason.CANCELLED
            assert finish.counts == finish.sent == TokenCounts()
            assert neighbour.reason is FinishReason.LENGTH
            computed = {step.sequence_id.partition("/")[0] for s in runner.steps for step in s}
            assert computed == {"waiting"}
            client.ack(["aborted"])
            await until(lambda: running.server.stats().journal_unacknowledged == 1)
            _, resubmitted = await read_all(client.submit(request("aborted")))
            assert resubmitted.reason is FinishReason.LENGTH

    asyncio.run(scenario())


def test_a_connection_lost_during_a_check_ends_its_request(
    tmp_path: Path, grammars: LlguidanceGrammars, runner: Obedient
) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path, runner, grammars=grammars) as running:
            survivor, lost = await running.client(), await running.client()
            lost.submit(request("lost", grammar=LONG))
            await until(lambda: running.checks is not None and running.checks.trials)
            await lost.close()

            await until(lambda: running.orphans)

            assert survivor.hello is not None
            (finish,) = running.orphans
            assert (finish.request_id, finish.reason) == ("lost", FinishReason.PEER_LOST)
            assert finish.counts == finish.sent == TokenCounts()
            assert not runner.steps

    asyncio.run(scenario())


def test_a_drain_lets_a_check_and_its_request_end(
    tmp_path: Path, grammars: LlguidanceGrammars, runner: Obedient
) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path, runner, grammars=grammars) as running:
            client = await running.client()
            stream = client.submit(request("r1", max_tokens=1, grammar=GOOD))
            await client.drain(60.0)

            _, finish = await read_all(stream)
            client.ack(["r1"])

            assert finish.reason is FinishReason.LENGTH
            async with asyncio.timeout(WAIT_S):
                await running.task

    asyncio.run(scenario())


def test_a_drain_without_grace_ends_a_request_during_its_check(
    tmp_path: Path, grammars: LlguidanceGrammars, runner: Obedient
) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path, runner, grammars=grammars) as running:
            client = await running.client()
            stream = client.submit(request("r1", grammar=LONG))
            await client.drain(0.0)

            _, finish = await read_all(stream)
            client.ack(["r1"])

            assert (finish.reason, finish.error_code) == (FinishReason.ERROR, "draining")
            assert finish.counts == TokenCounts()
            async with asyncio.timeout(WAIT_S):
                await running.task

    asyncio.run(scenario())


def test_past_the_trials_that_may_wait_a_grammar_is_refused_for_now(
    tmp_path: Path, grammars: LlguidanceGrammars, runner: Obedient
) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path, runner, grammars=grammars) as running:
            client = await running.client()
            known = request("known", max_tokens=1, grammar=GOOD)
            await read_all(client.submit(known))
            for i in range(TRIALS_MAX + WAITING_MAX):
                client.submit(request(f"r{i}", grammar=schema({"const": i})))

            _, finish = await read_all(client.submit(request("late", grammar=LONG)))
            _, neighbour = await read_all(client.submit(replace(known, request_id="known too")))

            assert finish.error_code == RefusalCode.QUEUE_FULL
            assert neighbour.reason is FinishReason.LENGTH
            assert running.checks is not None
            assert running.checks.trials < 1 + TRIALS_MAX + WAITING_MAX


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"queue_timeout_s": 0.001}, RefusalCode.QUEUE_TIMEOUT),
        ({"deadline_s": 0.001, "queue_timeout_s": 60.0}, RefusalCode.QUEUE_TIMEOUT),
        ({"queue_timeout_s": 60.0}, RefusalCode.INVALID_GRAMMAR),
    ],
)
def test_a_check_takes_no_longer_than_its_request_would_wait(
    tmp_path: Path,
    grammars: LlguidanceGrammars,
    runner: Obedient,
    limits: dict[str, float],
    code: RefusalCode,
) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path, runner, grammars=grammars) as running:
            client = await running.client()
            asked = replace(request("r1", grammar=schema({"$ref": "#"})), **limits)  # type: ignore[arg-type]

            _, finish = await read_all(client.submit(asked))

            assert (finish.reason, finish.error_code) == (FinishReason.REFUSED, code)

    asyncio.run(scenario())


def test_a_trial_that_the_machine_had_no_time_for_is_repeated(
    tmp_path: Path,
    grammars: LlguidanceGrammars,
    runner: Obedient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path, runner, grammars=grammars) as running:
            client = await running.client()
            with monkeypatch.context() as patched:
                patched.setattr(grammar_trials, "TRIAL_S", 0.0)
                _, late = await read_all(client.submit(request("late", grammar=GOOD)))
            again = request("again", max_tokens=1, grammar=GOOD)

            _, finish = await read_all(client.submit(again))

            assert (late.error_code, late.error_message) == (RefusalCode.INVALID_GRAMMAR, TOO_MUCH)
            assert finish.reason is FinishReason.LENGTH

    asyncio.run(scenario())

    asyncio.run(scenario())
