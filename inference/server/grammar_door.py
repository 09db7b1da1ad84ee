"""Requests whose grammar is being checked: not yet the engine's, and ended here if need be.

A request goes on to the step loop or ends with zero counts, exactly once; requests without a
grammar go straight through. Owned by the server, lives on the event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from inference.contracts import (
    Finish,
    FinishReason,
    GenerationRequest,
    Grammar,
    RefusalCode,
    Timings,
    TokenCounts,
)
from inference.engine.desk import ENGINE_ERROR
from inference.engine.engine import StepResult
from inference.engine.request import refused
from inference.server.grammar_trials import GrammarChecks

logger = logging.getLogger(__name__)

TIME_LEFT_S_MIN = 0.001
"""A limit that passed just now is the engine's to notice."""


class GrammarDoor:
    """`submit` gets what may go on, `on_result` what ends here. Without `checks` all goes on."""

    def __init__(
        self,
        checks: GrammarChecks | None,
        submit: Callable[[GenerationRequest], None],
        on_result: Callable[[StepResult], None],
    ) -> None:
        self._checks = checks
        self._submit = submit
        self._on_result = on_result
        self._checking: dict[str, asyncio.Task[None]] = {}

    def submit(self, request: GenerationRequest) -> None:
        """Lets a request through, at once or once its grammar is known to be good."""
        grammar = None if request.sampling is None else request.sampling.grammar
        if grammar is None or self._checks is None:
            self._submit(request)
            return
        self._checking[request.request_id] = asyncio.create_task(
            self._check(request, grammar, self._checks), name=f"check-{request.request_id}"
        )

    def abort(
        self,
        request_ids: Sequence[str],
        reason: FinishReason,
        error_code: str | None,
        error_message: str | None,
    ) -> list[str]:
        """Ends those of the requests that are still here; returns the others."""
        others = []
        for request_id in request_ids:
            task = self._checking.pop(request_id, None)
            if task is None:
                others.append(request_id)
                continue
            task.cancel()
            nothing = TokenCounts()
            self._end(
                Finish(request_id, reason, nothing, nothing, Timings(), error_code, error_message)
            )
        return others

    async def close(self) -> None:
        """Drops what is still here, and ends the trials."""
        for task in self._checking.values():
            task.cancel()
        await asyncio.gather(*self._checking.values(), return_exceptions=True)
        if self._checks is not None:
            await self._checks.close()

    async def _check(
        self, request: GenerationRequest, grammar: Grammar, checks: GrammarChecks
    ) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        limits_s = [s for s in (request.queue_timeout_s, request.deadline_s) if s is not None]
        try:
            async with asyncio.timeout(min(limits_s, default=None)):
                refusal = await checks.refusal(grammar)
                request = _after(request, loop.time() - began_s)
        except TimeoutError:
            refusal = RefusalCode.QUEUE_TIMEOUT, f"it did not start within {min(limits_s)} s"
        except Exception:
            # A process edge: whatever this grammar does, it does to its own request.
            logger.exception("event=grammar_check_failed request=%s", request.request_id)
            self.abort([request.request_id], FinishReason.ERROR, ENGINE_ERROR, "the check failed")
            return
        # Gone if it was aborted after the answer had come and before this task got to run.
        if self._checking.pop(request.request_id, None) is None:
            return
        if refusal is None:
            self._submit(request)
        else:
            self._end(refused(request.request_id, *refusal))

    def _end(self, finish: Finish) -> None:
        self._on_result(StepResult(finishes=(finish,)))


def _after(request: GenerationRequest, waited_s: float) -> GenerationRequest:
    """The request with what is left of its times, which count from its submission."""
    return replace(
        request,
        queue_timeout_s=_left_s(request.queue_timeout_s, waited_s),
        deadline_s=_left_s(request.deadline_s, waited_s),
    )


def _left_s(limit_s: float | None, waited_s: float) -> float | None:
    return None if limit_s is None else max(limit_s - waited_s, TIME_LEFT_S_MIN)
