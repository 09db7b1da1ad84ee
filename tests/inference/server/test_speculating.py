"""What an engine process does with `--speculation`: guesses, or refuses what does not fit."""

import argparse
import asyncio
import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from inference.contracts import GenerationRequest, SamplingParams
from inference.engine.drafting.speculation import Speculation
from inference.server.speculating import add_speculation_options, load_drafter, same_tokens
from inference.tokenizer.bundle import TOKENIZER_FILE, Bundle
from tests.inference.conftest import Golden
from tests.inference.engine.stub_runner import StubRunner
from tests.inference.server.engine_process import EXIT_S, EngineProcess
from tests.inference.server.running_server import read_all


def options(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_speculation_options(parser)
    return parser.parse_args(given)


def test_nothing_is_guessed_and_measured_unless_asked_for(bundle: Bundle) -> None:
    runner = StubRunner()

    assert load_drafter(options(), bundle, runner) is None
    assert runner.steps == []


def test_lookup_needs_no_more_than_its_name(bundle: Bundle) -> None:
    runner = StubRunner()

    assert isinstance(load_drafter(options("--speculation", "ngram"), bundle, runner), Speculation)
    assert runner.steps


@pytest.mark.parametrize(
    "given",
    [
        ("--speculation", "model"),
        ("--draft-bundle", "x"),
        ("--speculation", "ngram", "--draft-bundle", "x"),
    ],
)
def test_a_draft_bundle_goes_with_a_draft_model(bundle: Bundle, given: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="--draft-bundle goes with --speculation model"):
        load_drafter(options(*given), bundle, StubRunner())


def test_a_bundle_in_which_an_id_means_something_else_has_other_tokens(
    bundle: Bundle, tmp_path: Path
) -> None:
    other = dataclasses.replace(bundle, folder=tmp_path / "other")
    shutil.copytree(bundle.folder, other.folder, ignore=shutil.ignore_patterns("*.gguf"))
    same_before = same_tokens(bundle, other)
    path = other.folder / TOKENIZER_FILE
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = [token for token, token_id in vocabulary.items() if token_id in (500, 501)]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    path.write_text(json.dumps(tokenizer))

    assert same_before
    assert not same_tokens(bundle, other)
    assert not same_tokens(bundle, dataclasses.replace(bundle, stop_ids=(1,)))
    assert not same_tokens(bundle, dataclasses.replace(bundle, vocab_size=bundle.vocab_size - 1))


def test_an_engine_process_guesses_what_repeats(
    bundle: Bundle, goldens: list[Golden], tmp_path: Path
) -> None:
    engine = EngineProcess(bundle, tmp_path)
    process = engine.start("--speculation", "ngram")
    (golden,) = [g for g in goldens if g.prompt == "How do I boil an egg?"]

    async def scenario() -> None:
        async with engine.client() as client:
            sampling = SamplingParams(max_tokens=48, temperature=0.0)
            request = GenerationRequest("egg", (golden.prompt_ids,), sampling)

            chunks, finish = await read_all(client.submit(request))
            client.ack(["egg"])
            stats = await client.stats(5.0)

            assert "".join(chunk.text for chunk in chunks).count("Boil an egg:") > 3
            assert 0 < stats.accepted_tokens <= stats.drafted_tokens
            assert finish.counts.completion == 48
            assert len(chunks) < 48
            assert "event=speculation source=ngram" in engine.log()

    try:
        asyncio.run(scenario())
    finally:
        process.kill()
        process.wait(EXIT_S)
