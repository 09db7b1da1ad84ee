"""Hugging Face folders become bundles that encode as their own tokenizer does, or are refused."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from inference.tokenizer.build import build_bundle
from inference.tokenizer.bundle import Bundle, BundleInvalid
from inference.tokenizer.prompt import ChatMessage, PromptEncoder, TemplateRefused
from inference.tokenizer.token_bytes import TokenBytes
from inference.tokenizer.weights_digest import weights_digest
from tests.inference.tokenizer.toy_vocabularies import (
    TEMPLATE,
    byte_level_tokenizer,
    write_model_folder,
)

TOKENIZER = byte_level_tokenizer()
BEGIN, END = (TOKENIZER.token_to_id(token) for token in ("<|begin|>", "<|im_end|>"))


def build(folder: Path, tokenizer: Tokenizer | None = None, **files: dict[str, Any]) -> Bundle:
    write_model_folder(folder / "weights", tokenizer, **files)
    return build_bundle(folder / "weights", folder, "toy")


def piece_tokenizer(prepend_scheme: str) -> Tokenizer:
    """SentencePiece's kind, as newer tokenizer.json files have it."""
    bytes_and_pieces = [f"<0x{byte:02X}>" for byte in range(256)] + ["▁", "a", "▁a"]
    vocabulary = {token: index for index, token in enumerate(bytes_and_pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("▁", "a")], byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme, split=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(["<s>", "[INST]"])
    return tokenizer


def test_text_encodes_as_in_the_folder(tmp_path: Path) -> None:
    bundle = build(tmp_path)

    for text in ("an an", " 1234\n", "é€", "a<think>an"):
        ids = PromptEncoder(bundle).encode_text(text)

        assert ids == TOKENIZER.encode(text).ids
        assert b"".join(map(TokenBytes(bundle).of, ids)) == text.encode()


def test_what_the_tokenizer_cuts_off_or_fills_up_is_left_alone(tmp_path: Path) -> None:
    limited = byte_level_tokenizer()
    limited.enable_truncation(2)
    limited.enable_padding(length=8)

    assert len(PromptEncoder(build(tmp_path, limited)).encode_text("xyz")) == 3


def test_the_vocabulary_is_the_models(tmp_path: Path) -> None:
    bundle = build(tmp_path)

    assert bundle.vocab_size == 300 > TOKENIZER.get_vocab_size()
    assert TokenBytes(bundle).of(299) == b""
    assert bundle.context_tokens_max == 64
    assert bundle.weights_file == "weights"
    assert bundle.weights_sha256 == weights_digest(tmp_path / "weights")


def test_all_ends_stop_an_answer(tmp_path: Path) -> None:
    bundle = build(
        tmp_path,
        generation_config={"eos_token_id": [7, 9]},
        tokenizer_config={"eos_token": {"content": "<|begin|>"}},
    )

    assert bundle.stop_ids == (7, 9, BEGIN, END)


@pytest.mark.parametrize(
    ("settings", "begins"),
    [
        ({}, False),
        ({"add_bos_token": True, "bos_token": "<|begin|>"}, True),
        ({"add_bos_token": False, "bos_token": "<|begin|>"}, False),
    ],
)
def test_text_begins_as_the_tokenizer_is_configured(
    tmp_path: Path, settings: dict[str, Any], *, begins: bool
) -> None:
    bundle = build(tmp_path, tokenizer_config=settings)

    assert bundle.bos_id == (BEGIN if begins else None)


def test_text_begins_as_the_tokenizer_itself_does(tmp_path: Path) -> None:
    tokenizer = byte_level_tokenizer()
    tokenizer.post_processor = TemplateProcessing("<|begin|> $A", None, [("<|begin|>", BEGIN)])

    assert build(tmp_path, tokenizer).bos_id == BEGIN


@pytest.mark.parametrize("form", ["text", "list", "file"])
def test_a_template_is_found_wherever_it_is_kept(tmp_path: Path, form: str) -> None:
    tokens = {"bos_token": "<|begin|>", "eos_token": {"content": "<|im_end|>"}}
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATE}]
    stored = {"text": TEMPLATE, "list": named, "file": "never read"}[form]
    folder = tmp_path / "weights"
    write_model_folder(folder, tokenizer_config=tokens | {"chat_template": stored})
    if form == "file":
        (folder / "chat_template.jinja").write_text(TEMPLATE)

    encoder = PromptEncoder(build_bundle(folder, tmp_path, "toy"))

    ids = encoder.encode_chat([ChatMessage("user", "an")])
    assert ids == [BEGIN, *TOKENIZER.encode("an").ids, END]


def test_a_model_without_a_template_does_not_chat(tmp_path: Path) -> None:
    encoder = PromptEncoder(build(tmp_path, tokenizer_config={}))

    with pytest.raises(TemplateRefused, match="no chat template"):
        encoder.encode_chat([ChatMessage("user", "an")])


def test_templates_may_break_off_loops_and_ask_for_tools(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.content }}"
        "{% endfor %}{% if tools is not none %}tools{% endif %}"
    )
    encoder = PromptEncoder(build(tmp_path, tokenizer_config={"chat_template": template}))

    ids = encoder.encode_chat([ChatMessage("user", "an"), ChatMessage("user", "a")])

    assert ids == TOKENIZER.encode("an").ids


def test_templates_may_write_the_date(tmp_path: Path) -> None:
    template = "{{ strftime_now('%d %b %Y') }}"
    bundle = build(tmp_path, tokenizer_config={"chat_template": template})
    encoder = PromptEncoder(bundle, now=lambda: datetime(2031, 2, 3, tzinfo=UTC))

    ids = encoder.encode_chat([ChatMessage("user", "an")])

    assert ids == TOKENIZER.encode("03 Feb 2031").ids


@pytest.mark.parametrize(
    ("scheme", "pieces"), [("first", ["▁a", "[INST]", "a"]), ("always", ["▁a", "[INST]", "▁a"])]
)
def test_only_the_first_word_gets_a_space_where_the_tokenizer_says_so(
    tmp_path: Path, scheme: str, pieces: list[str]
) -> None:
    tokenizer = piece_tokenizer(scheme)
    template = "{{ messages[0].content }}[INST]{{ messages[1].content }}"
    encoder = PromptEncoder(
        build(tmp_path, tokenizer, tokenizer_config={"chat_template": template})
    )

    ids = encoder.encode_chat([ChatMessage("user", "a"), ChatMessage("user", "a")])

    assert [tokenizer.id_to_token(token_id) for token_id in ids] == pieces
    assert ids == tokenizer.encode("a[INST]a").ids


def prefix_within_a_sequence() -> Tokenizer:
    tokenizer = piece_tokenizer("first")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace("_", "first")])
    return tokenizer


def greedy_control_token() -> Tokenizer:
    tokenizer = byte_level_tokenizer()
    tokenizer.add_special_tokens([AddedToken("<|end|>", rstrip=True)])
    return tokenizer


def oddly_spelled() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE({"日": 0}, []))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (Tokenizer(models.WordPiece({"a": 0})), "only BPE over bytes"),
        (Tokenizer(models.BPE({"a": 0}, [])), "only BPE over bytes"),
        (prefix_within_a_sequence(), "within a sequence"),
        (greedy_control_token(), "takes in what stands beside it"),
        (oddly_spelled(), "not spelled in bytes"),
    ],
)
def test_a_tokenizer_that_cannot_be_served_is_refused(
    tmp_path: Path, tokenizer: Tokenizer, message: str
) -> None:
    with pytest.raises(BundleInvalid, match=message):
        build(tmp_path, tokenizer)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"add_eos_token": True}, "ends every prompt"),
        ({"add_bos_token": True}, "does not name"),
        ({"eos_token": "<|nowhere|>"}, "lacks the token"),
        ({"chat_template": [{"name": "rag", "template": ""}]}, "default one"),
        ({"chat_template": "{% if %}"}, "chat_template"),
    ],
)
def test_settings_that_contradict_the_model_are_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(BundleInvalid, match=message):
        build(tmp_path, tokenizer_config=settings)


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "model.safetensors"])
def test_a_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    write_model_folder(tmp_path / "weights")
    (tmp_path / "weights" / name).unlink()

    with pytest.raises(BundleInvalid, match=f"{name}|no safetensors"):
        build_bundle(tmp_path / "weights", tmp_path, "toy")


def test_a_bundle_does_not_overwrite_the_model(tmp_path: Path) -> None:
    write_model_folder(tmp_path / "weights")

    with pytest.raises(BundleInvalid, match="not inside"):
        build_bundle(tmp_path / "weights", tmp_path / "weights", "toy")


def test_the_digest_of_a_folder_covers_what_the_model_computes_with(tmp_path: Path) -> None:
    write_model_folder(tmp_path / "one")
    before = weights_digest(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    (tmp_path / "two" / "README.md").write_text("not the model")
    unchanged = weights_digest(tmp_path / "two")
    digests = {before}
    for name in ("config.json", "model.safetensors"):
        with (tmp_path / "two" / name).open("ab") as file:
            file.write(b" ")
        digests.add(weights_digest(tmp_path / "two"))
    (tmp_path / "two" / "model.safetensors").rename(tmp_path / "two" / "other.safetensors")
    digests.add(weights_digest(tmp_path / "two"))

    assert unchanged == before
    assert len(digests) == 4
