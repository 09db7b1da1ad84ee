"""Answers at the public door where engines are known to go wrong: stops, broken characters, log
probabilities, penalties and seeds, whole and streamed."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.house import LiveHouse, Tenant
from tests.prompts import STORY, chat

FRANCE = chat("What is the capital of France?")
SENTENCE = "The capital of France is Paris."
NEWLINE, PARIS = 198, " Paris"
HARD_TEXT = "😀👍🏽漢字é"


@pytest.fixture
def acme(house: LiveHouse) -> Tenant:
    return house.new_tenant()


@dataclass(frozen=True)
class Said:
    """One answer as its reader saw it; the pieces of a whole answer are one."""

    pieces: list[str]
    finish_reason: str | None
    completion_tokens: int

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def whole_and_streamed(house: LiveHouse, tenant: Tenant, **fields: Any) -> tuple[Said, Said]:
    """The same question asked both ways, greedily unless `fields` say otherwise."""
    body = {"model": house.model, "messages": FRANCE, "temperature": 0, **fields}
    client = house.client(tenant.secret)
    answer = client.chat.completions.create(**body)
    choice = answer.choices[0]
    *chunks, last = client.chat.completions.create(
        **body, stream=True, stream_options={"include_usage": True}
    )
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks]
    return (
        Said([choice.message.content], choice.finish_reason, answer.usage.completion_tokens),
        Said(pieces, chunks[-1].choices[0].finish_reason, last.usage.completion_tokens),
    )


@pytest.mark.parametrize(
    ("stop", "shown"),
    [
        ("pital of Fra", "The ca"),
        (["is Paris.", "France is Par"], "The capital of "),
    ],
)
def test_a_stop_cuts_the_same_text_whole_and_streamed_wherever_tokens_end(
    house: LiveHouse, acme: Tenant, stop: str | list[str], shown: str
) -> None:
    whole, streamed = whole_and_streamed(house, acme, stop=stop)

    assert whole.text == streamed.text == shown
    assert whole.finish_reason == streamed.finish_reason == "stop"
    assert whole.completion_tokens == streamed.completion_tokens


def test_a_long_stop_that_does_not_come_slices_no_token(house: LiveHouse, acme: Tenant) -> None:
    whole, streamed = whole_and_streamed(house, acme, stop="x" * 20)
    ends = {3, 11, 14, 21, 24, 30, len(SENTENCE)}  # The| capital| of| France| is| Paris|.
    seen, shown_chars = set(), 0
    for piece in streamed.pieces:
        shown_chars += len(piece)
        seen.add(shown_chars)

    assert whole.text == streamed.text == SENTENCE
    assert seen - {0} <= ends
    assert min(seen - {0}) == 3


def test_no_stop_string_ends_an_answer_before_its_min_tokens(
    house: LiveHouse, acme: Tenant
) -> None:
    both = whole_and_streamed(
        house,
        acme,
        logit_bias={str(NEWLINE): 100},
        stop="\n",
        max_tokens=14,
        extra_body={"min_tokens": 10},
    )

    for said in both:
        assert said.text == "\n" * 10
        assert (said.finish_reason, said.completion_tokens) == ("stop", 11)


def test_characters_that_tokens_tear_apart_arrive_whole(house: LiveHouse, acme: Tenant) -> None:
    whole, streamed = whole_and_streamed(house, acme, extra_body={"guided_regex": HARD_TEXT})

    assert whole.text == streamed.text == HARD_TEXT
    assert not any("\ufffd" in piece for piece in streamed.pieces)
    assert whole.finish_reason == streamed.finish_reason == "stop"
    assert streamed.completion_tokens > len(HARD_TEXT)


def strictly(text: str) -> Any:
    """JSON as its grammar has it: Python's own reader would take -Infinity and NaN."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


def events_of(text: str) -> list[Any]:
    frames = [frame.removeprefix("data: ") for frame in text.split("\n\n") if frame]
    assert frames[-1] == "[DONE]"
    return [strictly(frame) for frame in frames[:-1]]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"messages": FRANCE, "logprobs": True, "top_logprobs": 20}),
        ("completions", {"prompt": "a", "logprobs": 20}),
    ],
)
def test_excluded_tokens_have_a_finite_logprob_in_valid_json(
    house: LiveHouse, acme: Tenant, path: str, fields: dict[str, Any]
) -> None:
    body = {"model": house.model, "guided_regex": "[ab]{2}", "temperature": 0, **fields}
    with house.http(acme.secret) as client:
        whole = client.post(f"/v1/{path}", json=body)
        streamed = client.post(f"/v1/{path}", json=body | {"stream": True})

    for text, objects in (
        (whole.text, [strictly(whole.text)]),
        (streamed.text, events_of(streamed.text)),
    ):
        assert "-9999.0" in text
        assert "Infinity" not in text
        assert any(one["choices"][0]["logprobs"] for one in objects)


def test_streamed_logprobs_alone_are_as_complete_as_whole_ones(
    house: LiveHouse, acme: Tenant
) -> None:
    body = {
        "model": house.model,
        "messages": FRANCE,
        "temperature": 0,
        "logprobs": True,
        "guided_regex": HARD_TEXT,
    }
    with house.http(acme.secret) as client:
        whole = client.post("/v1/chat/completions", json=body).json()["choices"][0]["logprobs"]
        frames = client.post("/v1/chat/completions", json=body | {"stream": True}).text
    streamed = [
        entry
        for event in events_of(frames)
        for entry in (event["choices"][0]["logprobs"] or {"content": []})["content"]
    ]

    assert streamed == whole["content"]
    assert b"".join(bytes(entry["bytes"] or []) for entry in streamed).decode() == HARD_TEXT
    for entry in streamed:
        assert set(entry) == {"token", "logprob", "bytes", "top_logprobs"}
        assert entry["top_logprobs"] == []


def first_logprobs(house: LiveHouse, tenant: Tenant, **penalties: float) -> dict[str, float]:
    """The most probable first tokens after a prompt full of one word."""
    answer = house.client(tenant.secret).completions.create(
        model=house.model,
        prompt="Paris, Paris, Paris, Paris, Paris, Paris,",
        max_tokens=1,
        temperature=0,
        logprobs=3,
        extra_body=penalties,
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.top_logprobs is not None
    return logprobs.top_logprobs[0]


def test_presence_and_frequency_do_not_count_the_prompt_and_repetition_does(
    house: LiveHouse, acme: Tenant
) -> None:
    plain = first_logprobs(house, acme)
    penalized = first_logprobs(house, acme, presence_penalty=2, frequency_penalty=2)
    repeating = first_logprobs(house, acme, repetition_penalty=2)

    assert max(plain, key=lambda token: plain[token]) == PARIS
    assert penalized == pytest.approx(plain, abs=1e-3)
    assert repeating.get(PARIS, -99.0) < plain[PARIS] - 1


def test_a_seeded_answer_is_the_same_beside_neighbours_without_a_seed(
    house: LiveHouse, acme: Tenant
) -> None:
    seeded: dict[str, Any] = {
        "model": house.model,
        "messages": FRANCE,
        "temperature": 1.2,
        "seed": 7,
        "max_tokens": 16,
    }
    client = house.client(acme.secret)
    alone = client.chat.completions.create(**seeded)
    neighbours = client.chat.completions.create(
        model=house.model, messages=STORY, n=3, temperature=1.2, max_tokens=300, stream=True
    )
    next(iter(neighbours))
    among_others = client.chat.completions.create(**seeded)
    going_on = next(iter(neighbours)).choices[0]
    neighbours.close()

    assert going_on.finish_reason is None
    assert among_others.choices[0].message.content == alone.choices[0].message.content


def test_one_seed_gives_each_prompt_and_choice_of_a_request_a_draw_of_its_own(
    house: LiveHouse, acme: Tenant
) -> None:
    def texts(**fields: Any) -> list[str]:
        answer = house.client(acme.secret).completions.create(
            model=house.model, prompt=["Once upon a time"] * 4, n=2, max_tokens=6, **fields
        )
        return [choice.text for choice in answer.choices]

    first, again = texts(seed=11), texts(seed=11)

    assert len(set(first)) == 8
    assert again == first


def test_without_a_seed_no_two_requests_draw_alike(house: LiveHouse, acme: Tenant) -> None:
    client = house.client(acme.secret)
    texts = {
        client.completions.create(
            model=house.model, prompt="Once upon a time", temperature=1.5, max_tokens=12
        )
        .choices[0]
        .text
        for _ in range(2)
    }

    assert len(texts) == 2
