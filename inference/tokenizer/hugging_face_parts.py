"""Reads the parts of a bundle out of a Hugging Face folder.

tokenizer.json is taken as it is, after checking that its tokens can be turned into bytes one by
one; template, ends and begin of a sequence come from the files beside it. Called by `build`.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec
from tokenizers import Tokenizer

from inference.hugging_face_config import ConfigInvalid, read_config
from inference.tokenizer.bundle import (
    BUNDLE_FILE_BYTES_MAX,
    TEMPLATE_FILE,
    TOKENIZER_FILE,
    BundleInvalid,
)
from inference.tokenizer.bundle_parts import BundleParts, ready_template, stop_ids

TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
GENERATION_CONFIG_FILE = "generation_config.json"
DEFAULT_TEMPLATE = "default"


class _Token(msgspec.Struct, frozen=True):
    content: str


class _NamedTemplate(msgspec.Struct, frozen=True):
    name: str
    template: str


class _TokenizerConfig(msgspec.Struct, frozen=True):
    chat_template: str | tuple[_NamedTemplate, ...] | None = None
    bos_token: str | _Token | None = None
    eos_token: str | _Token | None = None
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None


class _GenerationConfig(msgspec.Struct, frozen=True):
    eos_token_id: int | tuple[int, ...] | None = None


class _AddedToken(msgspec.Struct, frozen=True):
    content: str
    special: bool
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


class _Step(msgspec.Struct, frozen=True):
    """A part of the pipeline of a tokenizer.json, which may be a sequence of such."""

    type: str = ""
    byte_fallback: bool = False
    prepend_scheme: str = ""
    decoders: tuple["_Step", ...] = ()
    pretokenizers: tuple["_Step", ...] = ()


class _TokenizerFile(msgspec.Struct, frozen=True):
    model: _Step = _Step()
    decoder: _Step | None = None
    pre_tokenizer: _Step | None = None
    added_tokens: tuple[_AddedToken, ...] = ()


def read_hugging_face_parts(folder: Path) -> BundleParts:
    """The parts of a folder. Raises BundleInvalid for what cannot be served as it was trained."""
    try:
        config = read_config(folder)
    except ConfigInvalid as error:
        raise BundleInvalid(str(error)) from error
    tokenizer = _tokenizer(folder)
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if largest >= config.vocab_size:
        raise BundleInvalid(f"{folder}: token {largest} is not among {config.vocab_size}")
    settings = _read(folder / TOKENIZER_CONFIG_FILE, _TokenizerConfig)
    generation = _read(folder / GENERATION_CONFIG_FILE, _GenerationConfig)
    bos, eos = _text(settings.bos_token), _text(settings.eos_token)
    named = {*_ids(config.eos_token_id), *_ids(generation.eos_token_id)}
    if eos is not None:
        named.add(_known(tokenizer, eos))
    return BundleParts(
        tokenizer=tokenizer,
        template=ready_template(_template(folder, settings), {"bos_token": bos, "eos_token": eos}),
        context_tokens_max=config.context_tokens_max,
        vocab_size=config.vocab_size,
        bos_id=_bos_id(tokenizer, settings, bos),
        stop_ids=stop_ids(tokenizer, named),
    )


def _tokenizer(folder: Path) -> Tokenizer:
    path = folder / TOKENIZER_FILE
    if not path.exists():
        raise BundleInvalid(f"{path} is missing; older kinds of tokenizer must be converted to it")
    described = _read(path, _TokenizerFile)
    decoders = {step.type for step in _steps(described.decoder)}
    if described.model.type != "BPE" or not (
        described.model.byte_fallback or "ByteLevel" in decoders
    ):
        raise BundleInvalid(f"{path}: only BPE over bytes or with byte fallback is supported")
    pre = described.pre_tokenizer
    if pre is not None and any(step.prepend_scheme == "first" for step in pre.pretokenizers):
        raise BundleInvalid(f"{path}: a first-word prefix within a sequence is not supported")
    for token in described.added_tokens:
        if token.special and (token.lstrip or token.rstrip or token.single_word):
            raise BundleInvalid(f"{path}: {token.content} takes in what stands beside it")
        if token.special and len(token.content) < 2:
            raise BundleInvalid(f"{path}: a control token of one character is like text")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _steps(step: _Step | None) -> Iterable[_Step]:
    return () if step is None else (step, *step.decoders)


def _template(folder: Path, settings: _TokenizerConfig) -> str | None:
    path = folder / TEMPLATE_FILE
    if path.exists():
        return _bytes(path).decode()
    if settings.chat_template is None or isinstance(settings.chat_template, str):
        return settings.chat_template
    named = {entry.name: entry.template for entry in settings.chat_template}
    if DEFAULT_TEMPLATE not in named:
        raise BundleInvalid(f"{folder}: none of the templates {sorted(named)} is the default one")
    return named[DEFAULT_TEMPLATE]


def _bos_id(tokenizer: Tokenizer, settings: _TokenizerConfig, bos: str | None) -> int | None:
    if settings.add_eos_token:
        raise BundleInvalid("a tokenizer that ends every prompt is not for generating text")
    if settings.add_bos_token is not None:
        if settings.add_bos_token and bos is None:
            raise BundleInvalid("the tokenizer adds a begin-of-sequence token it does not name")
        return _known(tokenizer, bos) if settings.add_bos_token and bos is not None else None
    added: list[int] = tokenizer.encode("", add_special_tokens=True).ids
    if len(added) > 1:
        raise BundleInvalid(f"the tokenizer puts {len(added)} tokens around every text")
    return added[0] if added else None


def _known(tokenizer: Tokenizer, token: str) -> int:
    token_id: int | None = tokenizer.token_to_id(token)
    if token_id is None:
        raise BundleInvalid(f"the vocabulary lacks the token {token!r}")
    return token_id


def _text(token: str | _Token | None) -> str | None:
    return token.content if isinstance(token, _Token) else token


def _ids(ids: int | tuple[int, ...] | None) -> tuple[int, ...]:
    if ids is None:
        return ()
    return (ids,) if isinstance(ids, int) else ids


_Shape = TypeVar("_Shape", bound=msgspec.Struct)


def _read(path: Path, shape: type[_Shape]) -> _Shape:
    """The JSON file in that shape; its defaults where there is no file."""
    if not path.exists():
        return shape()
    try:
        return msgspec.json.decode(_bytes(path), type=shape)
    except msgspec.DecodeError as error:
        raise BundleInvalid(f"{path}: {error}") from error


def _bytes(path: Path) -> bytes:
    if path.stat().st_size > BUNDLE_FILE_BYTES_MAX:
        raise BundleInvalid(f"{path}: larger than {BUNDLE_FILE_BYTES_MAX} bytes")
    return path.read_bytes()
