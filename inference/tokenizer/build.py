"""Write a bundle from a GGUF file: tokenizer, chat template, special ids and hash.

Runs once per model, in the model fetch or by hand (`python -m inference.tokenizer.build`): reading
a vocabulary out of GGUF takes seconds and hundreds of megabytes, which no serving process may pay.
Refuses a tokenizer it does not know rather than guess one that splits text differently.
"""

import argparse
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import msgspec
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from inference.tokenizer.bundle import (
    FORMAT,
    METADATA_FILE,
    TEMPLATE_FILE,
    TOKENIZER_FILE,
    Bundle,
    BundleInvalid,
    BundleMetadata,
    bundle_hash,
    load_bundle,
)

END_OF_TEXT = "<|endoftext|>"
"""Ends a document in pre-training, so it ends an answer too, whatever `eos` is."""


def _smollm() -> pre_tokenizers.PreTokenizer:
    """Each digit alone, then the byte-level pattern of GPT-2."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


PRE_TOKENIZERS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {"smollm": _smollm}
"""By the value of `tokenizer.ggml.pre`."""


def build_bundle(gguf_path: Path, folder: Path, name: str) -> Bundle:
    """Write the bundle of `gguf_path` into `folder`, which must be or contain the file's folder.

    Raises BundleInvalid for a file whose tokenizer is not byte-level BPE of a known kind.
    """
    try:
        weights_file = str(gguf_path.resolve().relative_to(folder.resolve()))
    except ValueError as error:
        raise BundleInvalid(f"{gguf_path} is not inside {folder}") from error
    reader = gguf.GGUFReader(gguf_path)
    tokenizer = _tokenizer(reader)
    template = str(_field(reader, "tokenizer.chat_template"))
    architecture = str(_field(reader, "general.architecture"))
    eos_id = int(_field(reader, "tokenizer.ggml.eos_token_id"))
    end_of_text_id: int | None = tokenizer.token_to_id(END_OF_TEXT)
    stop_ids = {eos_id} if end_of_text_id is None else {eos_id, end_of_text_id}
    adds_bos = bool(_field(reader, "tokenizer.ggml.add_bos_token", default=False))
    metadata = BundleMetadata(
        format=FORMAT,
        name=name,
        context_tokens_max=int(_field(reader, f"{architecture}.context_length")),
        vocab_size=tokenizer.get_vocab_size(),
        bos_id=int(_field(reader, "tokenizer.ggml.bos_token_id")) if adds_bos else None,
        stop_ids=tuple(sorted(stop_ids)),
        weights_file=weights_file,
        weights_sha256=_sha256(gguf_path),
        hash="",
    )
    tokenizer_bytes, template_bytes = tokenizer.to_str().encode(), template.encode()
    metadata = msgspec.structs.replace(
        metadata, hash=bundle_hash(metadata, tokenizer_bytes, template_bytes)
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TOKENIZER_FILE).write_bytes(tokenizer_bytes)
    (folder / TEMPLATE_FILE).write_bytes(template_bytes)
    # Last, so that an interrupted build leaves a folder that does not load.
    (folder / METADATA_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(metadata)))
    return load_bundle(folder)


def _tokenizer(reader: gguf.GGUFReader) -> Tokenizer:
    kind = str(_field(reader, "tokenizer.ggml.model"))
    pre = str(_field(reader, "tokenizer.ggml.pre", default=""))
    if kind != "gpt2" or pre not in PRE_TOKENIZERS:
        raise BundleInvalid(f"tokenizer {kind!r} with pre-tokenizer {pre!r} is not supported")
    tokens: list[str] = _field(reader, "tokenizer.ggml.tokens")
    types: list[int] = _field(reader, "tokenizer.ggml.token_type")
    merges: list[str] = _field(reader, "tokenizer.ggml.merges")
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=[_pair(merge) for merge in merges],
        )
    )
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    control = [
        token
        for token, kind_of in zip(tokens, types, strict=True)
        if kind_of == gguf.TokenType.CONTROL
    ]
    if any(len(token) < 2 for token in control):
        raise BundleInvalid("a control token of one character cannot be told from text")
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in control])
    if tokenizer.get_vocab_size() != len(tokens):
        raise BundleInvalid("the vocabulary names a token twice")
    return tokenizer


def _pair(merge: str) -> tuple[str, str]:
    left, right = merge.split(" ")
    return left, right


_REQUIRED = object()


def _field(
    reader: gguf.GGUFReader, key: str, default: object = _REQUIRED
) -> Any:  # GGUF's own types
    field = reader.get_field(key)
    if field is not None:
        return field.contents()
    if default is _REQUIRED:
        raise BundleInvalid(f"the GGUF file has no {key}")
    return default


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: list[str]) -> int:
    """Command line: GGUF FOLDER --name NAME."""
    parser = argparse.ArgumentParser(prog="python -m inference.tokenizer.build")
    parser.add_argument("gguf", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--name", required=True)
    options = parser.parse_args(arguments)
    try:
        bundle = build_bundle(options.gguf, options.folder, options.name)
    except BundleInvalid as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{bundle.folder} {bundle.hash}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
