"""Constrained answers match their grammar whatever the model says; bad grammars are refused."""

import json
import random
import re
from collections.abc import Iterator, Sequence

import pytest

from inference.contracts import (
    FinishReason,
    GenerationRequest,
    Grammar,
    GrammarKind,
    RefusalCode,
    SamplingParams,
)
from inference.engine.answering.llguidance_grammars import LlguidanceGrammars
from inference.engine.engine import Engine
from inference.engine.step import Drawn, SampleSpec, SequenceStep, StepOutput
from inference.tokenizer.bundle import Bundle
from inference.tokenizer.token_bytes import TokenBytes
from tests.inference.engine.driving import Answers, make_engine, run_to_end
from tests.inference.engine.stub_runner import StubRunner

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": False,
    }
)


class Monkey(StubRunner):
    """Draws any token that is allowed, each as likely as the other."""

    def __init__(self, vocab_size: int, seed: int) -> None:
        super().__init__(block_count=256, vocab_size=vocab_size, context_tokens_max=4096)
        self._random = random.Random(seed)

    def execute(self, steps: Sequence[SequenceStep]) -> list[StepOutput]:
        return [StepOutput(tuple(Drawn(self._any(s)) for s in step.samples)) for step in steps]

    def _any(self, spec: SampleSpec) -> int:
        mask = spec.allowed or b"\xff" * (self.vocab_size // 8 + 1)
        choices = [i for i in range(self.vocab_size) if mask[i // 8] >> i % 8 & 1]
        return self._random.choice(choices)


@pytest.fixture(scope="module")
def grammars(bundle: Bundle) -> LlguidanceGrammars:
    return LlguidanceGrammars(bundle)


@pytest.fixture
def engine(bundle: Bundle, grammars: LlguidanceGrammars, request: pytest.FixtureRequest) -> Engine:
    runner = Monkey(bundle.vocab_size, seed=getattr(request, "param", 0))
    return make_engine(
        runner, texts=TokenBytes(bundle), stop_ids=bundle.stop_ids, grammars=grammars
    )


def ask(grammar: Grammar | None, request_id: str = "r", max_tokens: int = 400) -> GenerationRequest:
    sampling = SamplingParams(max_tokens=max_tokens, grammar=grammar)
    return GenerationRequest(request_id, ((1, 2, 3),), sampling)


@pytest.mark.parametrize("engine", range(8), indirect=True)
def test_a_monkey_writes_what_its_schema_wants(engine: Engine) -> None:
    engine.submit(ask(Grammar(GrammarKind.JSON_SCHEMA, SCHEMA)))

    answers = run_to_end(engine)

    answer = json.loads(answers.text("r"))
    assert answers.finishes["r"].reason is FinishReason.STOP
    assert set(answer) == {"name", "age", "tags"}
    assert 0 <= answer["age"] <= 150
    assert set(answer["tags"]) <= {"a", "b"}


@pytest.mark.parametrize(
    "pattern", ["[0-9]{4}-[0-9]{2}", "(yes|no|maybe)", "😀👍🏽漢字é", "[a-c]{2,5}!"]
)
def test_a_monkey_types_what_its_pattern_wants(engine: Engine, pattern: str) -> None:
    engine.submit(ask(Grammar(GrammarKind.REGEX, pattern)))

    answers = run_to_end(engine)

    assert re.fullmatch(pattern, answers.text("r"))
    assert all("\ufffd" not in piece for piece in answers.pieces["r"])


def test_a_json_object_is_one_whatever_it_says(engine: Engine) -> None:
    engine.submit(ask(Grammar(GrammarKind.JSON_OBJECT), max_tokens=60))

    answers = run_to_end(engine)

    text = answers.text("r")
    assert text.startswith("{")
    if answers.finishes["r"].reason is FinishReason.STOP:
        assert isinstance(json.loads(text), dict)


def test_choices_and_neighbours_keep_their_own_place(engine: Engine) -> None:
    pattern = Grammar(GrammarKind.REGEX, "[ab]{6}")
    several = GenerationRequest("n", ((1,),), SamplingParams(max_tokens=50, grammar=pattern), 3)
    engine.submit(several)
    engine.submit(ask(Grammar(GrammarKind.REGEX, "[cd]{6}"), "other"))
    engine.submit(ask(None, "free", max_tokens=8))

    texts: dict[tuple[str, int], str] = {}
    for chunk in _chunks(engine):
        key = chunk[0], chunk[1]
        texts[key] = texts.get(key, "") + chunk[2]

    assert all(re.fullmatch("[ab]{6}", texts["n", choice]) for choice in range(3))
    assert re.fullmatch("[cd]{6}", texts["other", 0])


def _chunks(engine: Engine) -> Iterator[tuple[str, int, str]]:
    while engine.has_work:
        for chunk in engine.step().chunks:
            yield chunk.request_id, chunk.choice, chunk.text


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar(GrammarKind.JSON_SCHEMA, "{"),
        Grammar(GrammarKind.JSON_SCHEMA, "false"),
        Grammar(GrammarKind.JSON_SCHEMA, '{"type": 5}'),
        Grammar(GrammarKind.JSON_SCHEMA, '{"$ref": "https://example.com/schema.json"}'),
        Grammar(GrammarKind.REGEX, "("),
        Grammar(GrammarKind.REGEX, "(?=a)b"),
    ],
)
def test_a_bad_grammar_is_refused_and_its_neighbour_goes_on(
    engine: Engine, grammar: Grammar
) -> None:
    engine.submit(ask(None, "good", max_tokens=4))

    refusal = engine.submit(ask(grammar, "bad"))
    answers: Answers = run_to_end(engine)

    assert refusal is not None
    assert refusal.reason is FinishReason.REFUSED
    assert refusal.error_code == RefusalCode.INVALID_GRAMMAR
    assert refusal.error_message
    assert answers.finishes["good"].counts.completion == 4


def test_drafts_are_allowed_up_to_the_first_wrong_one_and_change_nothing(
    bundle: Bundle, grammars: LlguidanceGrammars
) -> None:
    texts = TokenBytes(bundle)
    digits = [token for token in range(bundle.vocab_size) if texts.of(token) == b"7"]
    matcher = grammars.matcher(Grammar(GrammarKind.REGEX, "[0-9]{3}"))
    before = matcher.masks([])

    assert matcher.allowed_prefix(digits * 5) == 3
    assert matcher.allowed_prefix([*digits, bundle.stop_ids[0]]) == 1
    assert len(matcher.masks(digits * 3)) == 4
    assert matcher.masks([]) == before


def test_a_complete_answer_ends_though_more_tokens_were_asked_for(engine: Engine) -> None:
    pattern = Grammar(GrammarKind.REGEX, "a")
    sampling = SamplingParams(max_tokens=20, grammar=pattern, min_tokens=10, ignore_eos=True)
    engine.submit(GenerationRequest("r", ((1, 2, 3),), sampling))

    answers = run_to_end(engine)

    assert answers.text("r") == "a"
    assert answers.finishes["r"].reason is FinishReason.STOP
    assert answers.finishes["r"].counts.completion == 2


def test_a_grammar_that_gives_up_ends_its_own_answer_by_what_it_computed(engine: Engine) -> None:
    engine.submit(ask(Grammar(GrammarKind.REGEX, "(a?){2000}a{2000}"), "heavy"))
    engine.submit(ask(None, "light", max_tokens=4))

    answers = run_to_end(engine)

    heavy = answers.finishes["heavy"]
    assert heavy.reason is FinishReason.ERROR
    assert heavy.error_code == RefusalCode.INVALID_GRAMMAR
    assert answers.finishes["light"].counts.completion == 4
