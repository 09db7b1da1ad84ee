"""Plain completions at the public door, with the stock client."""

from collections import defaultdict
from typing import Any

import pytest
from openai.types import Completion

from billing.facade import cost_pico
from tests import books
from tests.house import LiveHouse, Tenant

FRANCE = "The capital of France is"


@pytest.fixture
def acme(house: LiveHouse) -> Tenant:
    return house.new_tenant()


def complete(house: LiveHouse, tenant: Tenant, **fields: Any) -> Completion:
    body = {"model": house.model, "prompt": FRANCE, "temperature": 0, **fields}
    answer = house.client(tenant.secret).completions.create(**body)
    assert isinstance(answer, Completion)
    return answer


def test_text_is_continued_metered_and_charged(house: LiveHouse, acme: Tenant) -> None:
    answer = complete(house, acme)

    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    assert answer.choices[0].text.startswith(" Paris")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 16)
    (event,) = books.events(acme)
    assert event["charge_pico"] == cost_pico(books.quote(house, acme), books.counts(event))
    assert books.counts(event).output_tokens == 16
    assert books.holds(acme) == []


def test_token_ids_say_the_same_as_their_text(house: LiveHouse, acme: Tenant) -> None:
    ids = [504, 3575, 282, 4649, 314]
    by_text = complete(house, acme, max_tokens=4)
    by_ids = complete(house, acme, max_tokens=4, prompt=ids)
    both = complete(house, acme, max_tokens=4, prompt=[ids, ids[:4]])

    assert by_ids.choices[0].text == by_text.choices[0].text == both.choices[0].text
    assert [choice.index for choice in both.choices] == [0, 1]
    assert both.usage is not None
    assert both.usage.prompt_tokens == 9


def test_prompts_times_n_are_numbered_prompt_by_prompt(house: LiveHouse, acme: Tenant) -> None:
    prompts = [FRANCE, "One, two, three,"]
    answer = complete(house, acme, prompt=prompts, n=2, best_of=2, max_tokens=3)

    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    texts = [choice.text for choice in answer.choices]
    assert texts[0] == texts[1] != texts[2] == texts[3]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12
    (event,) = books.events(acme)
    assert event["output_tokens"] == 12


def test_a_stream_says_the_same_as_the_whole_answer(house: LiveHouse, acme: Tenant) -> None:
    fields: dict[str, Any] = {
        "prompt": [FRANCE, "One, two, three,"],
        "max_tokens": 6,
        "logprobs": 2,
    }
    whole = complete(house, acme, **fields)
    # Not strict: the SDK's own class forbids the null that OpenAI sends before the end.
    client = house.client(acme.secret, _strict_response_validation=False)
    chunks = list(
        client.completions.create(
            model=house.model,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
            **fields,
        )
    )
    parts = defaultdict(list)
    for chunk in chunks[:-1]:
        assert chunk.object == "text_completion"
        parts[chunk.choices[0].index].append(chunk.choices[0])

    for choice in whole.choices:
        own = parts[choice.index]
        assert "".join(part.text for part in own) == choice.text
        assert own[-1].finish_reason == "length"
        assert choice.logprobs is not None
        for name in ("tokens", "token_logprobs", "text_offset"):
            streamed = [
                value for part in own if part.logprobs for value in getattr(part.logprobs, name)
            ]
            assert streamed == getattr(choice.logprobs, name)
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage


def test_legacy_logprobs_are_parallel_lists(house: LiveHouse, acme: Tenant) -> None:
    choice = complete(house, acme, max_tokens=4, logprobs=3).choices[0]
    logprobs = choice.logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.text_offset is not None
    assert logprobs.top_logprobs is not None

    assert "".join(logprobs.tokens) == choice.text
    assert [choice.text[offset] for offset in logprobs.text_offset] == [
        token[0] for token in logprobs.tokens
    ]
    assert all(len(top) == 3 for top in logprobs.top_logprobs)
    assert [max(top, key=lambda token: top[token]) for top in logprobs.top_logprobs] == (
        logprobs.tokens
    )
