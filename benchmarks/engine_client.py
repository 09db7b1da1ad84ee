"""An engine process asked directly, past the platform: what it can do alone.

Requests go over its socket by the client that the gateway has, `at_once` of them in flight. Called
by benchmarks that compare the platform with its engine in one run.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inference.client.native import EngineClient
from inference.contracts import Finish, GenerationRequest, Priority, SamplingParams
from inference.tokenizer.bundle import Bundle

CONNECT_S = 120.0


@dataclass(frozen=True, slots=True)
class Driven:
    """What the engine did; gaps are seconds between tokens that follow each other."""

    elapsed_s: float
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    gaps_s: Sequence[float]

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens."""
        return self.completion_tokens / self.elapsed_s


async def drive(
    socket: Path,
    bundle: Bundle,
    prompts: Sequence[Sequence[int]],
    *,
    tokens_max: int,
    at_once: int,
    priority: Priority,
    salt: bytes,
) -> Driven:
    """Greedy answers to all prompts; `salt` keeps its prefix cache apart from everybody else's."""
    client = EngineClient(socket, bundle.hash, _nobodys)
    await client.start()
    seats = asyncio.Semaphore(at_once)
    finishes: list[Finish] = []
    gaps_s: list[float] = []

    async def ask(number: int) -> None:
        request = GenerationRequest(
            f"{salt.decode()}-{number}",
            (tuple(prompts[number]),),
            SamplingParams(max_tokens=tokens_max, temperature=0.0),
            cache_salt=salt,
            priority=priority,
            fairness_key=salt,
            stream=priority is Priority.INTERACTIVE,
        )
        async with seats:
            last_s = 0.0
            async for part in client.submit(request):
                if isinstance(part, Finish):
                    finishes.append(part)
                    client.ack([part.request_id])
                    continue
                now_s = time.perf_counter()
                if last_s:
                    gaps_s.append((now_s - last_s) / max(1, len(part.token_ids)))
                last_s = now_s

    try:
        await client.wait_connected(CONNECT_S)
        began_s = time.perf_counter()
        await asyncio.gather(*(ask(number) for number in range(len(prompts))))
        elapsed_s = time.perf_counter() - began_s
    finally:
        await client.close()
    assert all(finish.error_code is None for finish in finishes), finishes
    return Driven(
        elapsed_s,
        sum(finish.counts.prompt for finish in finishes),
        sum(finish.counts.cached for finish in finishes),
        sum(finish.counts.completion for finish in finishes),
        gaps_s,
    )


async def _nobodys(finishes: Sequence[Finish]) -> None:
    """Finishes of others: nobody else died."""
