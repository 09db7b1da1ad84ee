"""Answers in the shapes of the endpoints: whole and in chunks, with one or several choices."""

import base64
import struct
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from headrace.gateway.openai.answering import Answering
from headrace.gateway.openai.chat_response import ChatFraming
from headrace.gateway.openai.completions_response import CompletionsFraming
from headrace.gateway.openai.embeddings_response import EmbeddingsFraming
from headrace.gateway.orders import Blame, Order
from inference.contracts import Chunk, FinishReason, SamplingParams, TokenCounts, TokenLogprob
from inference.tokenizer.bundle import load_bundle
from inference.tokenizer.prompt import PromptEncoder
from inference.tokenizer.token_texts import TokenTexts

COUNTS = TokenCounts(10, 4, 3)
INFINITY = float("inf")


@pytest.fixture(scope="module")
def texts(bundle_folder: Path) -> TokenTexts:
    return PromptEncoder(load_bundle(bundle_folder)).token_texts


def answering(texts: TokenTexts, **fields: Any) -> Answering:
    logprobs = fields.pop("logprobs", None)
    sampling = SamplingParams(8, logprobs=logprobs)
    prompts = fields.pop("prompts", ("a",))
    return Answering(uuid4(), 1, Order("m", prompts, sampling, Blame("prompt"), **fields), texts)


def chunk(choice: int, text: str, *logprobs: TokenLogprob, ended: bool = False) -> Chunk:
    reason = FinishReason.STOP if ended else None
    return Chunk("r", text, (), COUNTS, choice, logprobs, reason)


def test_every_choice_of_a_chat_stream_opens_with_its_role_and_closes(texts: TokenTexts) -> None:
    framing = ChatFraming(answering(texts, choices=2, include_usage=True))
    payloads = [
        *framing.opening(),
        *framing.part(chunk(1, "x")),
        *framing.part(chunk(0, "")),
        *framing.part(chunk(0, "y", ended=True)),
        *framing.part(chunk(1, "", ended=True)),
        *framing.ending(COUNTS),
    ]
    *chunks, last = [ChatCompletionChunk.model_validate(payload) for payload in payloads]

    assert all(payload["usage"] is None for payload in payloads[:-1])
    for choice, text in ((0, "y"), (1, "x")):
        own = [one.choices[0] for one in chunks if one.choices[0].index == choice]
        assert [one.delta.role for one in own] == ["assistant", None, None]
        assert "".join(one.delta.content or "" for one in own) == text
        assert [one.finish_reason for one in own] == [None, None, "stop"]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.total_tokens == 13
    assert last.usage.prompt_tokens_details is not None
    assert last.usage.prompt_tokens_details.cached_tokens == 4


def test_without_the_option_a_stream_has_no_usage(texts: TokenTexts) -> None:
    framing = ChatFraming(answering(texts))

    assert framing.ending(COUNTS) == []
    assert all("usage" not in payload for payload in framing.opening())


def test_choices_of_a_whole_answer_stand_in_their_order(texts: TokenTexts) -> None:
    framing = ChatFraming(answering(texts, choices=2))
    whole = framing.whole([chunk(1, "b", ended=True), chunk(0, "a", ended=True)], COUNTS)
    answer = ChatCompletion.model_validate(whole)

    assert [(one.index, one.message.content) for one in answer.choices] == [(0, "a"), (1, "b")]
    assert answer.choices[0].logprobs is None


def test_a_failure_is_never_dressed_as_a_finish(texts: TokenTexts) -> None:
    failed = Chunk("r", "", (), COUNTS, finish_reason=FinishReason.ERROR)
    for framing in (ChatFraming(answering(texts)), CompletionsFraming(answering(texts))):
        with pytest.raises(AssertionError):
            framing.part(failed)
        with pytest.raises(AssertionError):
            framing.whole([chunk(0, "unended")], COUNTS)


def test_logprobs_of_a_chat_show_bytes_names_and_no_infinity(
    texts: TokenTexts, bundle_folder: Path
) -> None:
    (space_a,) = PromptEncoder(load_bundle(bundle_folder)).encode_text(" a")
    entries = (
        TokenLogprob(space_a, -0.5, top=((space_a, -0.5), (2, -INFINITY))),
        TokenLogprob(2, -0.25),
    )
    framing = ChatFraming(answering(texts, logprobs=2))
    answer = ChatCompletion.model_validate(
        framing.whole([chunk(0, " a", *entries, ended=True)], COUNTS)
    )

    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert logprobs.refusal is None
    first, second = logprobs.content
    assert (first.token, first.bytes, first.logprob) == (" a", [32, 97], -0.5)
    assert [(top.token, top.logprob) for top in first.top_logprobs] == [
        (" a", -0.5),
        ("<|im_end|>", -9999.0),
    ]
    assert (second.token, second.bytes, second.top_logprobs) == ("<|im_end|>", None, [])


def test_legacy_logprobs_count_characters_on_through_a_stream(
    texts: TokenTexts, bundle_folder: Path
) -> None:
    encoder = PromptEncoder(load_bundle(bundle_folder))
    word, face = encoder.encode_text(" a"), encoder.encode_text("é")
    framing = CompletionsFraming(answering(texts, logprobs=1))
    payloads = [
        *framing.part(chunk(0, " a", *(TokenLogprob(one, -1.0, ((9, -0.5),)) for one in word))),
        *framing.part(chunk(0, "é", *(TokenLogprob(one, -2.0) for one in face))),
        *framing.part(chunk(0, " a", *(TokenLogprob(one, -1.0) for one in word), ended=True)),
    ]
    # As plain objects: the SDK's class forbids the null that OpenAI sends before the end.
    parts = [payload["choices"][0] for payload in payloads]

    assert [part["finish_reason"] for part in parts] == [None, None, "stop"]
    first, second, third = (part["logprobs"] for part in parts)
    assert first == {
        "tokens": [" a"],
        "token_logprobs": [-1.0],
        "top_logprobs": [{texts.of(9).text: -0.5, " a": -1.0}],
        "text_offset": [0],
    }
    assert second["text_offset"][0] == 2
    assert third["text_offset"] == [3]


def test_whole_plain_completions_have_an_entry_for_each_prompt_and_choice(
    texts: TokenTexts,
) -> None:
    framing = CompletionsFraming(answering(texts, prompts=("a", "b"), choices=2, logprobs=0))
    whole = framing.whole([chunk(n, str(n), ended=True) for n in (2, 0, 3, 1)], COUNTS)
    answer = Completion.model_validate(whole)

    assert [(one.index, one.text) for one in answer.choices] == [(n, str(n)) for n in range(4)]
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.top_logprobs is None


@pytest.mark.parametrize("as_base64", [True, False])
def test_embeddings_are_the_same_numbers_in_both_encodings(
    texts: TokenTexts, as_base64: bool
) -> None:
    vectors = [(0.1, -0.7), (1.0, 0.0)]
    chunks = [
        Chunk("r", "", (), COUNTS, choice, embedding=struct.pack("<2f", *vector))
        for choice, vector in enumerate(vectors)
    ]
    order = Order("m", ("a", "b"), None, Blame("input"), embeddings_as_base64=as_base64)
    framing = EmbeddingsFraming(Answering(uuid4(), 1, order, texts))
    whole = msgspec.json.decode(msgspec.json.encode(framing.whole(chunks[::-1], COUNTS)))
    got = [entry["embedding"] for entry in whole["data"]]
    if as_base64:
        got = [list(struct.unpack("<2f", base64.b64decode(text))) for text in got]
    else:
        CreateEmbeddingResponse.model_validate(whole)

    assert got == [list(struct.unpack("<2f", struct.pack("<2f", *vector))) for vector in vectors]
    assert [entry["index"] for entry in whole["data"]] == [0, 1]
    assert whole["usage"] == {"prompt_tokens": 10, "total_tokens": 10}
