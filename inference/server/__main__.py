"""`python -m inference.server`: one engine process for one model on one device.

Loads the bundle and the weights, says what it will run with, serves until SIGTERM or a drain frame,
and exits 0; anything it cannot survive ends it non-zero with one clear line. The supervisor or the
operator's process manager starts it.
"""

import argparse
import asyncio
import faulthandler
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from inference.engine.answering.grammar import Grammars
from inference.engine.answering.llguidance_grammars import LlguidanceGrammars
from inference.engine.computing.capacity import PoolTooSmall
from inference.engine.drafting.draft_model import VocabulariesDiffer
from inference.engine.engine import Engine
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.server.grammar_trials import GrammarChecks
from inference.server.journal import Journal, JournalError
from inference.server.listener import SocketTaken, remove_stale
from inference.server.loading import add_runner_options, load_engine
from inference.server.server import STUCK_S, EngineServer, EngineStuck, ServedModel
from inference.server.speculating import add_speculation_options
from inference.tokenizer.bundle import BundleInvalid, bundle_files, load_bundle
from inference.weights.checkpoint import CheckpointInvalid

logger = logging.getLogger("inference.server")

FAULTS = (
    BundleInvalid,
    CheckpointInvalid,
    PoolTooSmall,
    VocabulariesDiffer,
    JournalError,
    SocketTaken,
    ValueError,
    OSError,
)
"""What ends the process with one line; anything else is a fault of ours and gets a traceback."""
EVENT_LOOP_PATIENCE = 2
"""How many times `--stuck-s` the event loop may stand still."""


def main(argv: Sequence[str]) -> int:
    """Runs an engine process; returns its exit status."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        return _serve(arguments)
    except EngineStuck as error:
        logger.critical("event=engine_stuck: %s", error)
        _leave_at_once()
    except FAULTS as error:
        logger.critical("event=engine_failed error=%s: %s", type(error).__name__, error)
    except Exception:
        logger.critical("event=engine_failed", exc_info=True)
    return 1


def _leave_at_once() -> NoReturn:
    """Ends the process though a thread is in the middle of something: finishes are journaled, and
    a regular exit could wait for that thread. Where it is goes to the log."""
    faulthandler.dump_traceback(all_threads=True)
    logging.shutdown()
    os._exit(1)


def default_threads() -> int:
    """Compute threads: all cores we may use but one, which is left for the web process."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m inference.server", description=__doc__)
    parser.add_argument("--bundle", type=Path, required=True, help="model bundle folder")
    parser.add_argument("--socket", type=Path, required=True, help="unix socket to serve on")
    parser.add_argument("--journal", type=Path, required=True, help="folder of the finish journal")
    parser.add_argument("--engine-id", default=f"engine-{os.getpid()}")
    add_runner_options(parser)
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--running-max", type=int, default=64)
    parser.add_argument(
        "--waiting-max",
        type=int,
        default=512,
        help="queued sequences per priority class; a fairness key gets no more once it holds as "
        "many as are left free",
    )
    parser.add_argument(
        "--step-tokens-max",
        type=int,
        default=256,
        help="a step is not interrupted: an abort waits for its end, which a full step of 256 "
        "prompt tokens reaches after about 0.8 s on one core",
    )
    parser.add_argument(
        "--inter-token-target-ms",
        type=float,
        default=200.0,
        help="a step that somebody waits for takes in prompts and batch work as long as it should "
        "end within this time; 0 for no bound: most throughput, least smoothness",
    )
    add_speculation_options(parser)
    parser.add_argument(
        "--stuck-s",
        type=float,
        default=STUCK_S,
        help="exit when work waits and no step has ended for so long",
    )
    parser.add_argument("--drain-s", type=float, default=20.0, help="grace after SIGTERM")
    return parser


def _serve(arguments: argparse.Namespace) -> int:
    limits = SchedulerLimits(
        step_tokens_max=arguments.step_tokens_max,
        running_max=arguments.running_max,
        waiting_max=arguments.waiting_max,
        inter_token_target_ms=arguments.inter_token_target_ms or None,
    )
    bundle = load_bundle(arguments.bundle)
    remove_stale(arguments.socket)
    journal = Journal(arguments.journal)
    grammars = LlguidanceGrammars(bundle)
    engine = load_engine(bundle, arguments, limits, grammars)
    # What is loaded stays: walking it took 80 ms of some step with every full collection.
    gc.collect()
    gc.freeze()
    served = ServedModel(
        engine_id=arguments.engine_id,
        model=bundle.name,
        bundle_hash=bundle.hash,
        files=bundle_files(bundle),
    )
    asyncio.run(_run(engine, grammars, served, journal, arguments))
    return 0


async def _run(
    engine: Engine,
    grammars: Grammars,
    served: ServedModel,
    journal: Journal,
    arguments: argparse.Namespace,
) -> None:
    stuck_s: float = arguments.stuck_s
    server = EngineServer(
        engine,
        served,
        arguments.socket,
        journal,
        stuck_s=stuck_s,
        grammar_checks=GrammarChecks(grammars),
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _drain_on_signal, server, number, arguments.drain_s)
    pulse = asyncio.create_task(_keep_alive(stuck_s), name="pulse")
    await server.run()
    pulse.cancel()


async def _keep_alive(stuck_s: float) -> None:
    """Puts off an exit that comes once the event loop itself stands still, as under native code
    that never lets go of the interpreter: then nobody else is there to notice."""
    while True:
        faulthandler.dump_traceback_later(EVENT_LOOP_PATIENCE * stuck_s, exit=True)
        await asyncio.sleep(stuck_s / EVENT_LOOP_PATIENCE)


def _drain_on_signal(server: EngineServer, number: signal.Signals, drain_s: float) -> None:
    logger.info("event=drain_signal signal=%s grace_s=%.1f", number.name, drain_s)
    server.start_drain(drain_s)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
