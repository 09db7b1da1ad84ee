"""From a bundle and the command line to an engine that is ready: formats, memory, guesses.

Says what it will run with, in lines an operator can compare. Called by the process's main module
only; it never opens a socket.
"""

import argparse
import logging
import time
from typing import TYPE_CHECKING

from inference.contracts import BLOCK_TOKENS, ModelLimits
from inference.engine.answering.grammar import Grammars
from inference.engine.engine import Engine
from inference.engine.overlapped import OverlappedEngine
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.server.speculating import load_drafter
from inference.tokenizer.bundle import Bundle
from inference.tokenizer.token_bytes import TokenBytes

if TYPE_CHECKING:
    from inference.engine.computing.runner import TorchRunner

logger = logging.getLogger("inference.server")

EXAMPLE_TOKENS = 512
"""The start-up line also says how many requests of this size fit the pool."""


def add_runner_options(parser: argparse.ArgumentParser) -> None:
    """Where and in which formats to compute, and how much memory to take."""
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--weights",
        choices=("auto", "float32", "float16", "bfloat16", "int8", "int4"),
        default="auto",
        help="auto is bfloat16 on CUDA, int8 on a CPU; what each costs in quality is in the docs",
    )
    parser.add_argument(
        "--kv",
        choices=("auto", "float32", "bfloat16", "int8", "float8"),
        default="auto",
        help="auto is what the weights are computed in",
    )
    parser.add_argument(
        "--batch-invariant",
        action="store_true",
        help="answers are the same to the bit in any company and however prompts are cut into "
        "steps (int8, int4 and float16 weights on a CPU); reading prompts takes longer",
    )
    parser.add_argument(
        "--pool-tokens",
        type=int,
        default=None,
        help="size of the KV pool; left out, it is sized by the memory that is left: half of it on "
        "a CPU, nine tenths on CUDA",
    )


def load_engine(
    bundle: Bundle, arguments: argparse.Namespace, limits: SchedulerLimits, grammars: Grammars
) -> Engine:
    """The engine, warmed up. Raises CheckpointInvalid, BundleInvalid, PoolTooSmall, ValueError."""
    # The first import of torch takes a second: what else is wrong has been said by now.
    from inference.engine.computing.runner import resolved_formats

    started_at_s = time.monotonic()
    runner = _load_runner(bundle, arguments)
    engine = _engine_over(runner, bundle, arguments, limits, grammars)
    formats = resolved_formats(arguments.weights, arguments.kv, runner.device.partition(":")[0])
    logger.info(
        "event=loaded model=%s device=%s weights=%s kv=%s threads=%d seconds=%.1f blocks=%d "
        "block_tokens=%d weight_megabytes=%d pool_megabytes=%d",
        bundle.name,
        runner.device,
        formats.weights,
        formats.kv,
        arguments.threads,
        time.monotonic() - started_at_s,
        runner.block_count,
        BLOCK_TOKENS,
        runner.memory.weight_bytes >> 20,
        runner.memory.pool_bytes >> 20,
    )
    _log_capacity(engine.limits, limits)
    return engine


def _load_runner(bundle: Bundle, arguments: argparse.Namespace) -> "TorchRunner":
    from inference.engine.computing.runner import load_runner

    runner = load_runner(
        bundle,
        pool_tokens=arguments.pool_tokens,
        threads=arguments.threads,
        device=arguments.device,
        weight_format=arguments.weights,
        kv_format=arguments.kv,
        step_tokens_max=arguments.step_tokens_max,
        running_max=arguments.running_max,
        batch_invariant=arguments.batch_invariant,
    )
    runner.warm_up()
    return runner


def _engine_over(
    runner: "TorchRunner",
    bundle: Bundle,
    arguments: argparse.Namespace,
    limits: SchedulerLimits,
    grammars: Grammars,
) -> Engine:
    drafter = load_drafter(arguments, bundle, runner)
    texts = TokenBytes(bundle)
    if runner.device.startswith("cuda") and drafter is None:
        from inference.engine.computing.cuda_runner import CudaRunner

        assert isinstance(runner, CudaRunner)
        return OverlappedEngine(
            runner,
            texts,
            stop_ids=bundle.stop_ids,
            limits=limits,
            clock=time.monotonic,
            grammars=grammars,
        )
    return Engine(
        runner,
        texts,
        stop_ids=bundle.stop_ids,
        limits=limits,
        clock=time.monotonic,
        grammars=grammars,
        drafter=drafter,
    )


def _log_capacity(model: ModelLimits, limits: SchedulerLimits) -> None:
    context_tokens = model.request_tokens_max()
    logger.info(
        "event=capacity running_max=%d: %d requests at %d tokens, %d requests at %d tokens",
        limits.running_max,
        min(model.pool_tokens // context_tokens, limits.running_max),
        context_tokens,
        min(model.pool_tokens // EXAMPLE_TOKENS, limits.running_max),
        EXAMPLE_TOKENS,
    )
