"""Calls of one Redis script that come at once go in one round trip, and are answered each.

A round trip costs more processor time than the call it carries, so those that come while one is
under way wait for it and go together in the next. Must never let one call's error reach another.
Called by the minute limits, on the event loop.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import redis.asyncio
from redis.exceptions import NoScriptError, RedisError

TOGETHER_MAX = 128
"""Calls of one round trip: the first of them waits for the last."""
Answer = list[bytes | int]


@dataclass(frozen=True, slots=True)
class _Call:
    keys: Sequence[str]
    arguments: Sequence[str | int]
    answer: "asyncio.Future[Answer]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class ScriptCalls:
    """`await calls(keys, arguments)` is what the script answers."""

    def __init__(self, connection: redis.asyncio.Redis, script: str) -> None:
        self._connection = connection
        self._script = script
        self._sha = connection.register_script(script).sha
        self._waiting: list[_Call] = []
        self._sending: asyncio.Task[None] | None = None

    async def __call__(self, keys: Sequence[str], arguments: Sequence[str | int]) -> Answer:
        """Raises RedisError, OSError or TimeoutError; the call may have taken effect then."""
        call = _Call(keys, arguments)
        self._waiting.append(call)
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())
        return await call.answer

    async def _send_all(self) -> None:
        try:
            while party := self._waiting[:TOGETHER_MAX]:
                del self._waiting[:TOGETHER_MAX]
                try:
                    answers = await self._send(party)
                    missing = [
                        call
                        for call, answer in zip(party, answers, strict=True)
                        if isinstance(answer, NoScriptError)
                    ]
                    if missing:  # a Redis that was started anew
                        _tell(party, answers, but=missing)
                        await self._connection.script_load(self._script)
                        party, answers = missing, await self._send(missing)
                    _tell(party, answers)
                except (RedisError, OSError, TimeoutError) as error:
                    _tell(party, [error] * len(party))
        finally:
            self._sending = None
            for call in self._waiting:  # only when this task is cancelled, at the process' end
                call.answer.cancel()

    async def _send(self, party: Sequence[_Call]) -> list[Answer | Exception]:
        pipeline = self._connection.pipeline(transaction=False)
        for call in party:
            pipeline.evalsha(self._sha, len(call.keys), *call.keys, *call.arguments)
        answers: list[Answer | Exception] = await pipeline.execute(raise_on_error=False)
        return answers


def _tell(
    party: Sequence[_Call], answers: Sequence[Answer | Exception], but: Sequence[_Call] = ()
) -> None:
    for call, answer in zip(party, answers, strict=True):
        if call.answer.done() or any(call is other for other in but):
            continue
        if isinstance(answer, Exception):
            call.answer.set_exception(answer)
        else:
            call.answer.set_result(answer)
