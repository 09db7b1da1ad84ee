"""How many tokens a request is and may become: counted once a prompt, bounded by the context."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from billing.contracts import Offer
from headrace.errors import ApiError
from headrace.gateway.admission.measuring import Measured, measure
from headrace.gateway.orders import Blame, Order, TokenIds
from inference.contracts import ModelLimits, SamplingParams
from inference.tokenizer.bundle import load_bundle
from inference.tokenizer.prompt import PromptEncoder

LIMITS = ModelLimits(
    context_tokens_max=100, pool_tokens=1000, vocab_size=49152, embedding_dimensions=576
)
OFFER = Offer(uuid4(), "m", "M", "o", 100, 40, datetime.now(UTC))


@pytest.fixture(scope="module")
def encoder(bundle_folder: Path) -> PromptEncoder:
    return PromptEncoder(load_bundle(bundle_folder))


def an_order(*prompts: Any, **fields: Any) -> Order:
    sampling = SamplingParams(
        fields.pop("max_tokens", 10),
        min_tokens=fields.pop("min_tokens", 0),
        logit_bias=fields.pop("logit_bias", ()),
    )
    order = Order("m", prompts, sampling, Blame("prompt"))
    return replace(order, **fields)


def measured(encoder: PromptEncoder, order: Order) -> Measured:
    return asyncio.run(measure(encoder, order, OFFER, LIMITS))


def test_prompts_count_once_and_outputs_for_every_choice(encoder: PromptEncoder) -> None:
    order = an_order(TokenIds((5,) * 7), TokenIds((6,) * 5), choices=3)

    assert measured(encoder, order) == Measured(((5,) * 7, (6,) * 5), 12, 10, 60)


def test_an_embedding_has_no_output_and_may_fill_the_context(encoder: PromptEncoder) -> None:
    order = an_order(TokenIds((5,) * 100), sampling=None, dimensions=576)

    assert measured(encoder, order) == Measured(((5,) * 100,), 100, 0, 0)


def test_no_limit_asked_means_what_context_and_offer_leave(encoder: PromptEncoder) -> None:
    for length, expected in ((90, 10), (5, 40)):
        order = an_order(TokenIds((5,) * length), max_tokens=2**31 - 1, max_tokens_asked=False)

        assert measured(encoder, order).max_tokens == expected


@pytest.mark.parametrize(
    ("order", "param"),
    [
        (an_order(TokenIds((5,) * 100)), "prompt"),
        (an_order(TokenIds((5,)), TokenIds((5,) * 91)), "max_tokens"),
        (an_order(TokenIds((5,) * 101), sampling=None), "prompt"),
        (an_order("a" * 7000), "prompt"),
        (an_order(TokenIds((49152,))), "prompt"),
        (an_order("a", logit_bias=((49152, 1.0),)), "logit_bias"),
        (an_order("a", min_tokens=41, max_tokens=50), "min_tokens"),
        (an_order("a", sampling=None, dimensions=512), "dimensions"),
        (an_order(TokenIds(())), "prompt"),
        (an_order("a", "\ud800"), "prompt"),
    ],
)
def test_what_does_not_fit_is_a_400_that_names_the_field(
    encoder: PromptEncoder, order: Order, param: str
) -> None:
    with pytest.raises(ApiError) as caught:
        measured(encoder, order)

    assert (caught.value.status, caught.value.param) == (400, param)


def test_log_probabilities_bound_the_output(
    encoder: PromptEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django.conf.settings.LOGPROBS_MAX", 100)
    sampling = SamplingParams(10, logprobs=4)
    fits = an_order(TokenIds((5,)), sampling=sampling, choices=2)
    too_many = an_order(TokenIds((5,)), sampling=sampling, choices=3)

    assert measured(encoder, fits).max_tokens == 10
    with pytest.raises(ApiError) as caught:
        measured(encoder, too_many)
    assert caught.value.param == "logprobs"
    assert measured(encoder, replace(too_many, max_tokens_asked=False)).max_tokens == 6


def test_all_prompts_together_have_a_limit(
    encoder: PromptEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django.conf.settings.PROMPTS_TOKENS_MAX", 15)
    several, single = an_order(TokenIds((5,) * 15), TokenIds((5,))), an_order(TokenIds((5,) * 16))

    with pytest.raises(ApiError) as caught:
        measured(encoder, several)
    assert caught.value.param == "prompt"
    assert measured(encoder, single).prompt_tokens == 16


def test_all_vectors_together_have_a_limit(
    encoder: PromptEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django.conf.settings.EMBEDDING_NUMBERS_MAX", 2 * 576)
    two, three = (an_order(*[TokenIds((5,))] * count, sampling=None) for count in (2, 3))

    assert measured(encoder, two).prompt_tokens == 2
    with pytest.raises(ApiError, match="At most 2 inputs"):
        measured(encoder, three)


class CountingEncoder(PromptEncoder):
    encoded = 0

    def encode_text(self, text: str) -> list[int]:
        self.encoded += 1
        return super().encode_text(text)


def test_no_more_is_encoded_than_shows_that_it_is_too_much(
    bundle_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django.conf.settings.PROMPTS_TOKENS_MAX", 500)
    encoder = CountingEncoder(load_bundle(bundle_folder))
    too_many_tokens = an_order(*["so it goes " * 10] * 60)
    too_many_characters = an_order(*[" " * 6000] * 2)

    for order, encoded_max in ((too_many_characters, 0), (too_many_tokens, 20)):
        with pytest.raises(ApiError, match="All prompts together"):
            measured(encoder, order)
        assert encoder.encoded <= encoded_max


def test_other_work_goes_on_while_a_long_prompt_is_encoded(encoder: PromptEncoder) -> None:
    limits = replace(LIMITS, context_tokens_max=200_000, pool_tokens=200_000)
    offer = replace(OFFER, context_tokens_max=200_000)
    order = an_order("The quick brown fox jumps over the lazy dog. " * 10_000)

    async def turns_meanwhile() -> int:
        measuring = asyncio.ensure_future(measure(encoder, order, offer, limits))
        turns = 0
        while not measuring.done():
            turns += 1
            await asyncio.sleep(0.001)
        await measuring
        return turns

    assert asyncio.run(turns_meanwhile()) > 20
