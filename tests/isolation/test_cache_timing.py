"""Whether the time to the first token tells one tenant what another has cached.

Acme fills the cache with a prompt; then, in random order, acme asks for it again, and two others
ask for the very same and for what nobody ever asked. Nothing but the tenant's own hits may read or
feel different. The order and the prompts come from a fixed seed.
"""

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx
import pytest

from tests.house import LiveHouse
from tests.isolation.kolmogorov_smirnov import are_separable, critical, statistic

ALPHA = 0.001
ROUNDS = 100
"""Each two samples of another tenant's prompts and of new ones, and one of a hit."""
WARM_UP_ROUNDS = 3
SEED = 20_260
WORDS = [
    "river",
    "mill",
    "stone",
    "water",
    "wheel",
    "grain",
    "flour",
    "bread",
    "morning",
    "winter",
    "garden",
    "window",
    "letter",
    "bridge",
    "market",
    "horse",
    "wagon",
    "road",
    "village",
    "tower",
    "bell",
    "school",
    "teacher",
    "paper",
    "story",
    "song",
    "dance",
    "light",
]
PROMPT_WORDS = 80
"""About a hundred tokens: a few blocks, so that a hit spares work that can be measured."""


@dataclass
class Samples:
    """Seconds to the first token, and prompt tokens that were cached, of one kind of request."""

    seconds: list[float] = field(default_factory=list)
    cached_tokens: list[int] = field(default_factory=list)


def first_token(client: httpx.Client, model: str, prompt: str, samples: Samples) -> None:
    """Asks for one token and notes when it came."""
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": 1,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    came_at = cached = None
    asked_at = time.perf_counter()
    with client.stream("POST", "/v1/completions", json=body) as answer:
        for line in answer.iter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line.removeprefix("data: "))
            if came_at is None and chunk["choices"]:
                came_at = time.perf_counter()
            if chunk.get("usage"):
                cached = chunk["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert answer.status_code == 200
    assert came_at is not None
    assert cached is not None
    samples.seconds.append(came_at - asked_at)
    samples.cached_tokens.append(cached)


def told(first: Sequence[float], second: Sequence[float]) -> str:
    """The verdict in numbers, for whoever reads a report."""
    bound = critical(len(first), len(second), ALPHA)
    return f"D = {statistic(first, second):.3f}, bound {bound:.3f}"


@pytest.mark.long
@pytest.mark.timeout(900)  # a busy machine makes it long
def test_the_time_to_the_first_token_tells_nothing_of_others(
    house: LiveHouse, record_testsuite_property: Callable[[str, object], None]
) -> None:
    limits = {"requests_per_minute_max": 100_000, "tokens_per_minute_max": 100_000_000}
    ours, *others = (house.http(house.new_tenant(**limits).secret) for _ in range(3))
    chance = random.Random(SEED)

    def prompt() -> str:
        return " ".join(chance.choices(WORDS, k=PROMPT_WORDS))

    own_hit, foreign, unknown = Samples(), Samples(), Samples()
    for round_ in range(WARM_UP_ROUNDS + ROUNDS):
        if round_ == WARM_UP_ROUNDS:
            own_hit, foreign, unknown = Samples(), Samples(), Samples()
        known = prompt()
        first_token(ours, house.model, known, Samples())
        asks = [(ours, known, own_hit)]
        asks += [(other, known, foreign) for other in others]
        asks += [(other, prompt(), unknown) for other in others]
        chance.shuffle(asks)
        for client, text, samples in asks:
            first_token(client, house.model, text, samples)
    seen, unseen = (told(one.seconds, unknown.seconds) for one in (own_hit, foreign))
    record_testsuite_property("own hits against what nobody asked", seen)
    record_testsuite_property("what another asked against what nobody asked", unseen)

    assert min(own_hit.cached_tokens) > 0
    assert set(foreign.cached_tokens) == set(unknown.cached_tokens) == {0}
    # The control: the very same test does see a hit, or its silence would mean nothing.
    assert are_separable(own_hit.seconds, unknown.seconds, ALPHA), seen
    assert not are_separable(foreign.seconds, unknown.seconds, ALPHA), unseen
