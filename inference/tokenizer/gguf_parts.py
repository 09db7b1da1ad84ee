"""Reads the parts of a bundle out of a GGUF file.

Two kinds of tokenizer: byte-level BPE with a pre-tokenizer known by name, and SentencePiece's BPE,
whose merges follow from its scores. Refuses one it does not know rather than guess one that splits
text differently. Called by `build`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from inference.tokenizer.bundle import BundleInvalid
from inference.tokenizer.bundle_parts import BundleParts, ready_template, stop_ids
from inference.tokenizer.token_bytes import SPACE_PIECE

LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Llama 3 cuts text before merging; part of its tokenizer.json."""
QWEN2_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _smollm() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


@dataclass(frozen=True, slots=True)
class ByteLevelKind:
    """One kind of byte-level BPE. `whole_words` takes a word that is a token without merging it;
    `adds_bos` is what holds where the file does not say."""

    pre_tokenizer: Callable[[], pre_tokenizers.PreTokenizer]
    normalizer: Callable[[], normalizers.Normalizer] | None = None
    whole_words: bool = False
    adds_bos: bool = False


BYTE_LEVEL_KINDS = {
    "gpt-2": ByteLevelKind(_gpt2),
    "smollm": ByteLevelKind(_smollm),
    "llama-bpe": ByteLevelKind(lambda: _split(LLAMA3_PATTERN), whole_words=True, adds_bos=True),
    "qwen2": ByteLevelKind(lambda: _split(QWEN2_PATTERN), normalizer=normalizers.NFC),
}
"""By the value of `tokenizer.ggml.pre`."""


def read_gguf_parts(path: Path) -> BundleParts:
    """The parts of a GGUF file. Raises BundleInvalid for a tokenizer of an unknown kind."""
    try:
        fields = _Fields(gguf.GGUFReader(path))
    except (OSError, ValueError) as error:
        raise BundleInvalid(f"{path}: {error}") from error
    kind = str(fields.required("tokenizer.ggml.model"))
    pre = str(fields.get("tokenizer.ggml.pre", ""))
    if kind == "llama":
        tokenizer, adds_bos = _sentence_pieces(fields), True
    elif kind == "gpt2" and pre in BYTE_LEVEL_KINDS:
        tokenizer, adds_bos = _byte_level(fields, BYTE_LEVEL_KINDS[pre])
    else:
        raise BundleInvalid(f"tokenizer {kind!r} with pre-tokenizer {pre!r} is not supported")
    architecture = str(fields.required("general.architecture"))
    context = int(fields.required(f"{architecture}.context_length"))
    # As in the weights' reader: beyond a sliding window attention is no longer plain.
    window = int(fields.get(f"{architecture}.attention.sliding_window", 0))
    adds_bos = bool(fields.get("tokenizer.ggml.add_bos_token", adds_bos))
    ids = {name: fields.get(f"tokenizer.ggml.{name}", None) for name in ("bos_token_id", *END_KEYS)}
    if adds_bos and ids["bos_token_id"] is None:
        raise BundleInvalid(f"{path}: adds a begin-of-sequence token that it does not name")
    return BundleParts(
        tokenizer=tokenizer,
        template=ready_template(
            fields.get("tokenizer.chat_template", None),
            {
                f"{name}_token": None if token_id is None else tokenizer.id_to_token(int(token_id))
                for name, token_id in (("bos", ids["bos_token_id"]), ("eos", ids["eos_token_id"]))
            },
        ),
        context_tokens_max=min(context, window or context),
        vocab_size=len(fields.required("tokenizer.ggml.tokens")),
        bos_id=int(ids["bos_token_id"]) if adds_bos else None,
        stop_ids=stop_ids(tokenizer, [int(ids[key]) for key in END_KEYS if ids[key] is not None]),
    )


class _Fields:
    """A GGUF file's metadata."""

    def __init__(self, reader: gguf.GGUFReader) -> None:
        self._reader = reader

    def get(self, key: str, default: object) -> Any:  # GGUF's own types
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    def required(self, key: str) -> Any:  # GGUF's own types
        field = self._reader.get_field(key)
        if field is None:
            raise BundleInvalid(f"the GGUF file has no {key}")
        return field.contents()

    def tokens(self) -> list[tuple[str, gguf.TokenType]]:
        """Text and type of each token."""
        texts: list[str] = self.required("tokenizer.ggml.tokens")
        types: list[int] = self.required("tokenizer.ggml.token_type")
        if len(texts) != len(types):
            raise BundleInvalid("the vocabulary has another length than its types")
        return list(zip(texts, map(gguf.TokenType, types), strict=True))


def _byte_level(fields: _Fields, kind: ByteLevelKind) -> tuple[Tokenizer, bool]:
    tokens = fields.tokens()
    merges: list[str] = fields.required("tokenizer.ggml.merges")
    tokenizer = Tokenizer(
        models.BPE(
            vocab=_vocabulary(tokens),
            merges=[_pair(merge) for merge in merges],
            ignore_merges=kind.whole_words,
        )
    )
    if kind.normalizer is not None:
        tokenizer.normalizer = kind.normalizer()
    tokenizer.pre_tokenizer = kind.pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    _add_tokens(tokenizer, tokens, control=(gguf.TokenType.CONTROL,))
    return tokenizer, kind.adds_bos


def _sentence_pieces(fields: _Fields) -> Tokenizer:
    """SentencePiece's BPE as Hugging Face's converters of Llama 2 build it."""
    if fields.get("tokenizer.ggml.precompiled_charsmap", None) is not None or fields.get(
        "tokenizer.ggml.remove_extra_whitespaces", default=False
    ):
        raise BundleInvalid("a SentencePiece tokenizer that rewrites its text is not supported")
    tokens = fields.tokens()
    scores: list[float] = fields.required("tokenizer.ggml.scores")
    unknown = [text for text, kind in tokens if kind == gguf.TokenType.UNKNOWN]
    tokenizer = Tokenizer(
        models.BPE(
            vocab=_vocabulary(tokens),
            merges=_merges_by_score(tokens, scores),
            unk_token=unknown[0] if unknown else None,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix: list[normalizers.Normalizer] = [normalizers.Prepend(SPACE_PIECE)]
    if not fields.get("tokenizer.ggml.add_space_prefix", default=True):
        prefix = []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", SPACE_PIECE)])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE_PIECE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    _add_tokens(tokenizer, tokens, control=(gguf.TokenType.CONTROL, gguf.TokenType.UNKNOWN))
    return tokenizer


def _merges_by_score(
    tokens: list[tuple[str, gguf.TokenType]], scores: list[float]
) -> list[tuple[str, str]]:
    """Every way to make a piece of two others, the best-scored piece first."""
    pieces = {
        text: index for index, (text, kind) in enumerate(tokens) if kind == gguf.TokenType.NORMAL
    }

    def pairs(text: str) -> Iterator[tuple[str, str]]:
        for cut in range(1, len(text)):
            if text[:cut] in pieces and text[cut:] in pieces:
                yield text[:cut], text[cut:]

    best_first = sorted(pieces, key=lambda text: (-scores[pieces[text]], pieces[text]))
    return [
        pair
        for text in best_first
        for pair in sorted(pairs(text), key=lambda pair: (pieces[pair[0]], pieces[pair[1]]))
    ]


def _vocabulary(tokens: list[tuple[str, gguf.TokenType]]) -> dict[str, int]:
    """Ids by text, without the places that only fill the embedding up."""
    kept = [
        (text, index) for index, (text, kind) in enumerate(tokens) if kind != gguf.TokenType.UNUSED
    ]
    vocabulary = dict(kept)
    if len(vocabulary) != len(kept):
        raise BundleInvalid("the vocabulary names a token twice")
    return vocabulary


def _add_tokens(
    tokenizer: Tokenizer,
    tokens: list[tuple[str, gguf.TokenType]],
    *,
    control: tuple[gguf.TokenType, ...],
) -> None:
    special = [text for text, kind in tokens if kind in control]
    if any(len(text) < 2 for text in special):
        raise BundleInvalid("a control token of one character cannot be told from text")
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in special])
    own = [text for text, kind in tokens if kind == gguf.TokenType.USER_DEFINED]
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in own])


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right
