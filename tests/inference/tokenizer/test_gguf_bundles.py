"""GGUF files of each kind of tokenizer become bundles that split text as in training."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.tokenizer.build import build_bundle
from inference.tokenizer.bundle import Bundle, BundleInvalid
from inference.tokenizer.prompt import ChatMessage, PromptEncoder, TemplateRefused
from inference.tokenizer.token_bytes import TokenBytes
from tests.inference.tokenizer.toy_vocabularies import (
    BYTE_LEVEL_TOKENS,
    CONTROL,
    PIECE_TOKENS,
    PIECES,
    TEMPLATE,
    write_vocabulary,
)

BYTE_LEVEL_IDS = {token[0]: index for index, token in enumerate(BYTE_LEVEL_TOKENS)}
PIECE_IDS = {token[0]: index for index, token in enumerate(PIECE_TOKENS)}
BYTE_LEVEL_ENDS = {"bos": "<|begin|>", "eos": "<|begin|>"}
PIECE_ENDS = {"bos": "<s>", "eos": "</s>"}


def build(folder: Path, pre: str, **options: object) -> Bundle:
    path = folder / "model.gguf"
    if pre == "llama":
        options = {"tokens": PIECE_TOKENS, "ids": PIECE_ENDS} | options
    else:
        options = {"ids": BYTE_LEVEL_ENDS} | options
    write_vocabulary(path, pre, **options)  # type: ignore[arg-type]  # a test's shorthand
    return build_bundle(path, folder, "toy")


def spelled(bundle: Bundle, text: str) -> list[str]:
    """The bytes of each token of plain text, without a begin-of-sequence token."""
    ids = PromptEncoder(bundle).encode_text(text)[bundle.bos_id is not None :]
    return [TokenBytes(bundle).of(token_id).decode(errors="backslashreplace") for token_id in ids]


@pytest.mark.parametrize(
    ("pre", "digits"),
    [
        ("gpt-2", ["1234"]),
        ("smollm", ["1", "2", "3", "4"]),
        ("qwen2", ["1", "2", "3", "4"]),
        ("llama-bpe", ["123", "4"]),
    ],
)
def test_numbers_are_cut_as_each_family_does(tmp_path: Path, pre: str, digits: list[str]) -> None:
    assert spelled(build(tmp_path, pre), "1234") == digits


@pytest.mark.parametrize(
    ("pre", "pieces"), [("gpt-2", ["'", "L", "L"]), ("qwen2", ["'LL"]), ("llama-bpe", ["'LL"])]
)
def test_contractions_in_capitals(tmp_path: Path, pre: str, pieces: list[str]) -> None:
    assert spelled(build(tmp_path, pre), "I'LL")[1:] == pieces


@pytest.mark.parametrize(("pre", "composed"), [("qwen2", True), ("llama-bpe", False)])
def test_qwen_composes_characters(tmp_path: Path, pre: str, *, composed: bool) -> None:
    pieces = spelled(build(tmp_path, pre), "e\u0301")

    assert (pieces == ["\u00e9"]) == composed


@pytest.mark.parametrize(("pre", "whole"), [("llama-bpe", True), ("gpt-2", False)])
def test_llama_takes_a_known_word_whole(tmp_path: Path, pre: str, *, whole: bool) -> None:
    pieces = spelled(build(tmp_path, pre), " whole")

    assert (pieces == [" whole"]) == whole


def test_a_token_added_later_stands_for_itself(tmp_path: Path) -> None:
    assert spelled(build(tmp_path, "qwen2"), "an<think>an") == ["an", "<think>", "an"]


def test_places_that_fill_the_embedding_up_have_no_text(tmp_path: Path) -> None:
    bundle = build(tmp_path, "qwen2")

    assert bundle.vocab_size == len(BYTE_LEVEL_TOKENS)
    assert TokenBytes(bundle).of(BYTE_LEVEL_IDS["[PAD]"]) == b""
    assert "".join(spelled(bundle, "[PAD]")) == "[PAD]"


def test_every_known_end_stops_an_answer(tmp_path: Path) -> None:
    bundle = build(tmp_path, "qwen2")

    assert bundle.stop_ids == (BYTE_LEVEL_IDS["<|begin|>"], BYTE_LEVEL_IDS["<|im_end|>"])


@pytest.mark.parametrize(
    ("pre", "flag", "begins"),
    [
        ("llama-bpe", None, True),
        ("llama-bpe", False, False),
        ("qwen2", None, False),
        ("qwen2", True, True),
        ("llama", None, True),
    ],
)
def test_text_begins_as_the_model_was_trained(
    tmp_path: Path, pre: str, flag: bool | None, *, begins: bool
) -> None:
    flags = {} if flag is None else {"add_bos_token": flag}

    bundle = build(tmp_path, pre, flags=flags)

    assert (bundle.bos_id is not None) == begins


def test_a_template_writes_the_tokens_it_names(tmp_path: Path) -> None:
    bundle = build(tmp_path, "llama")

    ids = PromptEncoder(bundle).encode_chat([ChatMessage("user", "abc"), ChatMessage("user", "d")])

    expected = ["<s>", "▁abc", "</s>", "▁", "d", "</s>"]
    assert ids == [PIECE_IDS[token] for token in expected]


def test_a_model_without_a_template_completes_but_does_not_chat(tmp_path: Path) -> None:
    encoder = PromptEncoder(build(tmp_path, "llama", template=None))

    assert encoder.encode_text("abc") == [PIECE_IDS["<s>"], PIECE_IDS["▁abc"]]
    with pytest.raises(TemplateRefused, match="no chat template"):
        encoder.encode_chat([ChatMessage("user", "abc")])


def by_pieces(text: str) -> list[str]:
    """SentencePiece's BPE as its paper has it: merge the best-scored neighbours, leftmost first."""
    symbols = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        known = [
            (-PIECES[left + right], place)
            for place, (left, right) in enumerate(pairwise(symbols))
            if left + right in PIECES
        ]
        if not known:
            break
        place = min(known)[1]
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
    return [
        piece
        for symbol in symbols
        for piece in (
            [symbol] if symbol in PIECES else [f"<0x{byte:02X}>" for byte in symbol.encode()]
        )
    ]


@pytest.fixture(scope="module")
def pieces_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return build(tmp_path_factory.mktemp("pieces"), "llama")


@given(text=st.text(st.sampled_from("abcd é<0x1>")))
@settings(deadline=None)
def test_pieces_are_merged_by_score(pieces_bundle: Bundle, text: str) -> None:
    ids = PromptEncoder(pieces_bundle).encode_text(text)

    assert ids == [PIECE_IDS[token] for token in ["<s>", *by_pieces(text)]]


@given(text=st.text())
@settings(deadline=None)
def test_pieces_spell_any_text(pieces_bundle: Bundle, text: str) -> None:
    ids = PromptEncoder(pieces_bundle).encode_text(text)

    spelled_bytes = b"".join(map(TokenBytes(pieces_bundle).of, ids))
    assert spelled_bytes == (b" " if text else b"") + text.replace("▁", " ").encode()


def test_a_word_prefix_can_be_switched_off(tmp_path: Path) -> None:
    bundle = build(tmp_path, "llama", flags={"add_space_prefix": False})

    assert spelled(bundle, "abc") == ["abc"]


@pytest.mark.parametrize(
    ("pre", "options", "message"),
    [
        ("falcon", {}, "'gpt2' with pre-tokenizer 'falcon'"),
        ("qwen2", {"leave_out": "merges"}, "merges"),
        ("qwen2", {"tokens": [*BYTE_LEVEL_TOKENS, ("an", CONTROL)]}, "names a token twice"),
        ("qwen2", {"tokens": [*BYTE_LEVEL_TOKENS, ("€", CONTROL)]}, "one character"),
        ("llama-bpe", {"ids": {"eos": "<|im_end|>"}}, "does not name"),
        ("llama", {"flags": {"remove_extra_whitespaces": True}}, "rewrites its text"),
        ("qwen2", {"template": TEMPLATE + "{% if %}"}, "chat_template"),
    ],
)
def test_what_would_be_split_differently_is_refused(
    tmp_path: Path, pre: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(BundleInvalid, match=message):
        build(tmp_path, pre, **options)


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"PK\x03\x04" + bytes(100))

    with pytest.raises(BundleInvalid, match=r"model\.gguf"):
        build_bundle(tmp_path / "model.gguf", tmp_path, "toy")
