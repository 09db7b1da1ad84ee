"""Several choices, log probabilities and every sampling field, with the stock client."""

from collections import defaultdict
from typing import Any

import pytest
from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion import Choice

from billing.facade import cost_pico, estimate_pico
from tests import books
from tests.house import LiveHouse, Tenant, wait_until
from tests.prompts import chat

FRANCE = chat("What is the capital of France?")
STORY = chat("Tell me a short story about a mill.")


@pytest.fixture
def acme(house: LiveHouse) -> Tenant:
    return house.new_tenant()


def ask(house: LiveHouse, tenant: Tenant, **fields: Any) -> ChatCompletion:
    body = {"model": house.model, "messages": FRANCE, "temperature": 0, **fields}
    answer = house.client(tenant.secret).chat.completions.create(**body)
    assert isinstance(answer, ChatCompletion)
    return answer


def content(choice: Choice) -> str:
    assert choice.message.content is not None
    return choice.message.content


def test_choices_share_a_prompt_and_are_held_and_charged_once(house: LiveHouse) -> None:
    quote = books.quote(house, house.new_tenant())
    tenant = house.new_tenant(credit_pico=estimate_pico(quote, 40, 2 * 12))
    answer = ask(house, tenant, messages=STORY, n=2, temperature=1, seed=5, max_tokens=12)

    assert [choice.index for choice in answer.choices] == [0, 1]
    assert len({content(choice) for choice in answer.choices}) == 2
    assert {choice.finish_reason for choice in answer.choices} == {"length"}
    assert answer.usage is not None
    assert answer.usage.prompt_tokens < 40
    assert answer.usage.completion_tokens == 24
    (event,) = books.events(tenant)
    assert event["output_tokens"] == 24
    assert event["charge_pico"] == cost_pico(quote, books.counts(event))
    assert books.holds(tenant) == []


def test_streamed_choices_say_what_the_whole_answer_says(house: LiveHouse, acme: Tenant) -> None:
    fields: dict[str, Any] = {"n": 3, "temperature": 1.0, "seed": 11, "max_tokens": 8}
    whole = ask(house, acme, messages=STORY, **fields)
    stream = house.client(acme.secret).chat.completions.create(
        model=house.model,
        messages=STORY,
        stream=True,
        stream_options={"include_usage": True},
        **fields,
    )
    *chunks, last = stream
    deltas = defaultdict(list)
    for chunk in chunks:
        deltas[chunk.choices[0].index].append(chunk.choices[0])

    for choice in whole.choices:
        own = deltas[choice.index]
        assert own[0].delta.role == "assistant"
        assert "".join(one.delta.content or "" for one in own) == content(choice)
        assert [one.finish_reason for one in own if one.finish_reason] == ["length"]
        assert own[-1].finish_reason == "length"
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 24


def test_a_cut_stream_of_two_choices_costs_what_both_generated(
    house: LiveHouse, acme: Tenant
) -> None:
    stream = house.client(acme.secret).chat.completions.create(
        model=house.model, messages=STORY, n=2, max_tokens=600, stream=True
    )
    seen = [next(iter(stream)) for _ in range(8)]
    stream.close()
    wait_until(lambda: books.events(acme) and not books.holds(acme))
    (event,) = books.events(acme)

    assert {chunk.choices[0].index for chunk in seen} == {0, 1}
    assert event["finish_reason"] == "cancelled"
    assert 6 <= event["output_tokens"] < 1200
    assert books.counts(event).prompt_tokens > 0
    assert books.balance(acme).held_pico == 0


def test_logprobs_alone_come_without_alternatives(house: LiveHouse, acme: Tenant) -> None:
    choice = ask(house, acme, logprobs=True).choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None

    shown = [entry for entry in choice.logprobs.content if entry.bytes is not None]
    assert b"".join(bytes(entry.bytes or []) for entry in shown).decode() == content(choice)
    assert "".join(entry.token for entry in shown) == content(choice)
    assert all(entry.top_logprobs == [] for entry in choice.logprobs.content)
    assert all(-20 < entry.logprob <= 0 for entry in choice.logprobs.content)


def test_top_logprobs_of_a_greedy_answer_begin_with_what_was_drawn(
    house: LiveHouse, acme: Tenant
) -> None:
    whole = ask(house, acme, logprobs=True, top_logprobs=4).choices[0].logprobs
    chunks = house.client(acme.secret).chat.completions.create(
        model=house.model,
        messages=FRANCE,
        temperature=0,
        logprobs=True,
        top_logprobs=4,
        stream=True,
    )
    streamed = [
        entry
        for chunk in chunks
        if chunk.choices[0].logprobs is not None
        for entry in chunk.choices[0].logprobs.content or []
    ]
    assert whole is not None
    assert whole.content is not None

    assert [entry.token for entry in streamed] == [entry.token for entry in whole.content]
    for entry in whole.content:
        values = [top.logprob for top in entry.top_logprobs]
        assert len(values) == 4
        assert values == sorted(values, reverse=True)
        assert entry.top_logprobs[0].token == entry.token


def test_a_bias_forces_and_forbids_tokens(house: LiveHouse, acme: Tenant) -> None:
    plain = ask(house, acme, max_tokens=1, logprobs=True).choices[0]
    forced = ask(house, acme, max_tokens=3, logit_bias={"9805": 100}).choices[0]
    forbidden = ask(
        house, acme, max_tokens=1, logprobs=True, top_logprobs=2, logit_bias={"504": -100}
    ).choices[0]

    assert plain.logprobs is not None and plain.logprobs.content is not None
    assert plain.logprobs.content[0].token == "The"  # id 504
    assert content(forced) == " yes" * 3  # id 9805
    assert content(forbidden) != "The"


@pytest.mark.parametrize(
    "fields",
    [
        {"frequency_penalty": 2},
        {"presence_penalty": 2},
        {"extra_body": {"repetition_penalty": 2.0}},
        {"temperature": 1, "extra_body": {"min_p": 0.99}},
        {"temperature": 1, "extra_body": {"top_k": 1}},
    ],
)
def test_sampling_fields_change_what_they_should(
    house: LiveHouse, acme: Tenant, fields: dict[str, Any]
) -> None:
    greedy = ask(house, acme, messages=STORY, max_tokens=40)
    changed = ask(house, acme, messages=STORY, max_tokens=40, **fields)
    narrowed = "temperature" in fields

    assert (content(changed.choices[0]) == content(greedy.choices[0])) is narrowed


def test_an_answer_goes_on_until_min_tokens_and_past_the_end_if_asked(
    house: LiveHouse, acme: Tenant
) -> None:
    for extra in ({"min_tokens": 20}, {"ignore_eos": True}):
        answer = ask(house, acme, max_tokens=20, extra_body=extra)

        assert answer.usage is not None
        assert answer.usage.completion_tokens == 20
        assert answer.choices[0].finish_reason == "length"


def test_a_stop_token_ends_the_answer(house: LiveHouse, acme: Tenant) -> None:
    answer = ask(house, acme, extra_body={"stop_token_ids": [282]})  # " of"

    assert content(answer.choices[0]) == "The capital"
    assert answer.choices[0].finish_reason == "stop"
