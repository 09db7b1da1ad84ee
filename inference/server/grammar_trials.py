"""Whether a grammar may come near the engine: tried in a process that may die of it.

The library that compiles grammars bounds neither time nor memory, and a grammar comes from a
tenant. So each new one is compiled in a process of its own first, then once beside the compute
thread, which finds it compiled. Torch-free; lives on the event loop, owned by the server.
"""

import asyncio
import logging
import sys
from collections import OrderedDict
from pathlib import Path

from inference.contracts import Grammar, RefusalCode
from inference.engine.admission import Refusal
from inference.engine.answering.grammar import GrammarInvalid, Grammars
from inference.server.grammar_trial import REFUSED

logger = logging.getLogger(__name__)

VERDICTS_MAX = 256
"""Verdicts remembered, each with its grammar of up to 64 k characters."""
TRIALS_MAX = 2
"""Grammars that are tried or compiled at once."""
WAITING_MAX = 64
"""Different grammars that wait for their trial; those of one grammar wait for one trial."""
TRIAL_S = 5.0
"""By the clock, for a process that gets too little of a busy machine to use up its second."""
TOO_MUCH = "the grammar is too large or too complex"
ROOT = Path(__file__).parents[2]


class GrammarChecks:
    """Verdicts on grammars; `grammars` compiles the good ones for the engine."""

    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars
        self._verdicts: OrderedDict[Grammar, str | None] = OrderedDict()
        self._running: dict[Grammar, asyncio.Task[Refusal | None]] = {}
        self._turns = asyncio.Semaphore(TRIALS_MAX)
        self.trials = 0

    async def refusal(self, grammar: Grammar) -> Refusal | None:
        """None once the grammar is compiled. Whoever stops waiting leaves the trial to others."""
        running = self._running.get(grammar)
        if running is None:
            is_new = grammar not in self._verdicts
            if is_new and len(self._running) >= TRIALS_MAX + WAITING_MAX:
                return RefusalCode.QUEUE_FULL, "too many grammars are waiting to be tried"
            running = asyncio.create_task(self._check(grammar), name="grammar-check")
            self._running[grammar] = running
            running.add_done_callback(lambda _: self._running.pop(grammar))
        return await asyncio.shield(running)

    async def close(self) -> None:
        """Ends what is running, with its processes."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _check(self, grammar: Grammar) -> Refusal | None:
        # Known grammars never wait for the trials of new ones.
        if grammar in self._verdicts:
            self._verdicts.move_to_end(grammar)
            return await self._compiled(grammar, self._verdicts[grammar])
        async with self._turns:
            try:
                verdict = await self._tried(grammar)
            except TimeoutError:
                # Not remembered: a machine less busy may find it good.
                logger.warning("event=grammar_trial_late seconds=%.1f", TRIAL_S)
                return RefusalCode.INVALID_GRAMMAR, TOO_MUCH
            except OSError:
                logger.exception("event=grammar_trial_failed")
                return RefusalCode.QUEUE_FULL, "the grammar cannot be tried now"
            self._remember(grammar, verdict)
            return await self._compiled(grammar, verdict)

    async def _compiled(self, grammar: Grammar, verdict: str | None) -> Refusal | None:
        if verdict is None:
            try:
                await asyncio.to_thread(self._grammars.matcher, grammar)
            except GrammarInvalid as error:
                verdict = str(error)
                self._remember(grammar, verdict)
        return None if verdict is None else (RefusalCode.INVALID_GRAMMAR, verdict)

    async def _tried(self, grammar: Grammar) -> str | None:
        """What is wrong with a grammar. Raises TimeoutError, OSError."""
        self.trials += 1
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "inference.server.grammar_trial",
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(TRIAL_S):
                message, _ = await process.communicate(
                    f"{grammar.kind.value}\n{grammar.source}".encode()
                )
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode == 0:
            return None
        if process.returncode == REFUSED:
            return message.decode()
        logger.warning("event=grammar_too_much status=%s", process.returncode)
        return TOO_MUCH

    def _remember(self, grammar: Grammar, verdict: str | None) -> None:
        self._verdicts[grammar] = verdict
        if len(self._verdicts) > VERDICTS_MAX:
            self._verdicts.popitem(last=False)
