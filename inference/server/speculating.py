"""The engine process's choice of drafts: its options, and the drafter they ask for.

`--speculation ngram` needs nothing else; `model` needs the bundle of a smaller model with the same
tokens. Step times are measured here once, after warming up, so that guessing pays on this machine
or does not happen. Called by the process's main module only.
"""

import argparse
import logging
import time
from pathlib import Path

from inference.contracts import BLOCK_TOKENS
from inference.engine.drafting.draft_length import FREE, RowCosts, measure_costs
from inference.engine.drafting.draft_model import DraftModel, VocabulariesDiffer
from inference.engine.drafting.ngram_drafts import NgramDrafts
from inference.engine.drafting.speculation import Drafter, Speculation
from inference.engine.step import Runner
from inference.tokenizer.bundle import Bundle, load_bundle
from inference.tokenizer.token_bytes import TokenBytes

logger = logging.getLogger("inference.server")


def add_speculation_options(parser: argparse.ArgumentParser) -> None:
    """`--speculation` and `--draft-bundle`."""
    parser.add_argument(
        "--speculation",
        choices=("off", "ngram", "model"),
        default="off",
        help="guess tokens ahead, from repetitions in the text or by a smaller model; answers stay "
        "what they are, and where guessing does not pay it stops by itself",
    )
    parser.add_argument("--draft-bundle", type=Path, help="the smaller model's bundle folder")


def load_drafter(arguments: argparse.Namespace, bundle: Bundle, runner: Runner) -> Drafter | None:
    """What `--speculation` asks for, for an idle runner that has been warmed up.

    Raises ValueError for options that do not fit together, VocabulariesDiffer, BundleInvalid and
    CheckpointInvalid.
    """
    if (arguments.speculation == "model") != (arguments.draft_bundle is not None):
        raise ValueError("--draft-bundle goes with --speculation model")
    if arguments.speculation == "off":
        return None
    checking = measure_costs(runner, time.perf_counter)
    if arguments.speculation == "ngram":
        _log_costs("ngram", checking, FREE)
        return Speculation(NgramDrafts(), end_ids=bundle.stop_ids, checking=checking)
    draft_runner = _load_draft_runner(arguments, bundle, runner)
    drafting = measure_costs(draft_runner, time.perf_counter)
    _log_costs("model", checking, drafting)
    source = DraftModel(draft_runner, vocab_size=runner.vocab_size, end_ids=bundle.stop_ids)
    return Speculation(source, end_ids=bundle.stop_ids, checking=checking, drafting=drafting)


def same_tokens(bundle: Bundle, other: Bundle) -> bool:
    """Whether every id means the same to both models."""
    if other.vocab_size != bundle.vocab_size or set(other.stop_ids) != set(bundle.stop_ids):
        return False
    texts, other_texts = TokenBytes(bundle), TokenBytes(other)
    return all(texts.of(i) == other_texts.of(i) for i in range(bundle.vocab_size))


def _load_draft_runner(arguments: argparse.Namespace, bundle: Bundle, runner: Runner) -> Runner:
    from inference.engine.computing.runner import load_runner

    draft_bundle = load_bundle(arguments.draft_bundle)
    if not same_tokens(bundle, draft_bundle):
        raise VocabulariesDiffer(f"{draft_bundle.name} has other tokens than {bundle.name}")
    return load_runner(
        draft_bundle,
        pool_tokens=runner.block_count * BLOCK_TOKENS,
        threads=arguments.threads,
        device=arguments.device,
        weight_format=arguments.weights,
        kv_format=arguments.kv,
    )


def _log_costs(source: str, checking: RowCosts, drafting: RowCosts) -> None:
    logger.info(
        "event=speculation source=%s step_ms=%s draft_ms=%.1f",
        source,
        "/".join(f"{rows}:{checking.at(rows) * 1000:.1f}" for rows in checking.rows),
        drafting.at(1) * 1000,
    )
