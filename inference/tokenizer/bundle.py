"""The bundle folder: what one model is, as small files that load in a blink.

Holds tokenizer, chat template, special ids and the hash that web and engine compare before they
speak. Imports neither torch nor gguf and never opens the weights: the web process loads it at
start, the engine's front does too, and `build` writes it once from the weights file.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

METADATA_FILE = "bundle.json"
TOKENIZER_FILE = "tokenizer.json"
TEMPLATE_FILE = "chat_template.jinja"
BUNDLE_FILE_BYTES_MAX = 64 * 1024 * 1024
"""No tokenizer known is a third as large; a larger file is not one."""


class BundleInvalid(Exception):
    """The folder is not a usable bundle; the message names the file and what is wrong with it."""


class BundleMetadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of bundle.json. `hash` covers every other field and the other two files."""

    format: int
    name: str
    context_tokens_max: int
    vocab_size: int
    bos_id: int | None
    stop_ids: tuple[int, ...]
    weights_file: str
    weights_sha256: str
    hash: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """One model's identity and where its files are.

    `bos_id` is the id that goes before a plain-text prompt, None where the model wants none (a chat
    template writes its own). `stop_ids` end a generation. `weights_file` is relative to `folder`
    and may be absent there, since a web process needs no weights.
    """

    folder: Path
    name: str
    hash: str
    context_tokens_max: int
    vocab_size: int
    bos_id: int | None
    stop_ids: tuple[int, ...]
    weights_file: str
    weights_sha256: str


FORMAT = 1


def bundle_hash(metadata: BundleMetadata, tokenizer: bytes, template: bytes) -> str:
    """Hex SHA-256 over the metadata without `hash` and the other files, each with its length."""
    unsigned = msgspec.json.encode(msgspec.structs.replace(metadata, hash=""), order="sorted")
    digest = hashlib.sha256(b"headrace-bundle-1")
    for part in (unsigned, tokenizer, template):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def load_bundle(folder: Path) -> Bundle:
    """Read and check a bundle folder. Raises BundleInvalid on a missing, wrong or altered file."""
    raw = _read(folder, METADATA_FILE)
    try:
        metadata = msgspec.json.decode(raw, type=BundleMetadata)
    except msgspec.DecodeError as error:
        raise BundleInvalid(f"{folder / METADATA_FILE}: {error}") from error
    if metadata.format != FORMAT:
        raise BundleInvalid(f"{folder / METADATA_FILE}: format {metadata.format}, not {FORMAT}")
    if not all(0 <= token_id < metadata.vocab_size for token_id in metadata.stop_ids):
        raise BundleInvalid(f"{folder / METADATA_FILE}: a stop id lies outside the vocabulary")
    actual = bundle_hash(metadata, _read(folder, TOKENIZER_FILE), _read(folder, TEMPLATE_FILE))
    if actual != metadata.hash:
        raise BundleInvalid(f"{folder}: files do not match the hash in {METADATA_FILE}")
    return Bundle(
        folder=folder,
        name=metadata.name,
        hash=metadata.hash,
        context_tokens_max=metadata.context_tokens_max,
        vocab_size=metadata.vocab_size,
        bos_id=metadata.bos_id,
        stop_ids=metadata.stop_ids,
        weights_file=metadata.weights_file,
        weights_sha256=metadata.weights_sha256,
    )


def bundle_files(bundle: Bundle) -> dict[str, bytes]:
    """The files that make the same bundle elsewhere, by name; everything but the weights."""
    return {
        name: _read(bundle.folder, name) for name in (METADATA_FILE, TOKENIZER_FILE, TEMPLATE_FILE)
    }


def _read(folder: Path, name: str) -> bytes:
    path = folder / name
    try:
        if path.stat().st_size > BUNDLE_FILE_BYTES_MAX:
            raise BundleInvalid(f"{path}: larger than {BUNDLE_FILE_BYTES_MAX} bytes")
        return path.read_bytes()
    except OSError as error:
        raise BundleInvalid(f"{path}: {error.strerror}") from error
