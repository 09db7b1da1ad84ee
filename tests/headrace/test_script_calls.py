"""Calls of a script that come at once share a round trip, and nothing else."""

import asyncio
import os

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from headrace.gateway.admission.script_calls import TOGETHER_MAX, ScriptCalls

SCRIPT = """
    if ARGV[1] == 'spoilt' then return redis.error_reply('spoilt') end
    return {tonumber(ARGV[1])}"""


def test_each_call_has_its_own_answer_also_of_a_redis_that_lost_the_script(
    django_database: object,
) -> None:
    asked = [*range(TOGETHER_MAX + 5), "spoilt", 7]

    async def ask(calls: ScriptCalls) -> list[object]:
        asking = (calls(["a key"], [argument]) for argument in asked)
        return list(await asyncio.gather(*asking, return_exceptions=True))

    async def story() -> list[list[object]]:
        async with Redis.from_url(os.environ["REDIS_URL"]) as connection:
            calls = ScriptCalls(connection, SCRIPT)
            first = await ask(calls)
            await connection.script_flush()
            return [first, await ask(calls)]

    for answers in asyncio.run(story()):
        *good, spoilt, last = answers
        assert good == [[number] for number in range(TOGETHER_MAX + 5)]
        assert isinstance(spoilt, ResponseError)
        assert last == [7]
