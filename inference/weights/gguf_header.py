"""The head of a GGUF file: metadata and where each tensor lies.

The gguf package's own reader builds a numpy view for every vocabulary entry, which costs an engine
start two seconds and 290 MB; this one steps over arrays, whose only readers are tokenizer builds.
Trusts no length in the file. Called by `gguf_file`. Layout: ggml's docs/gguf.md, versions 2 and 3.
"""

import struct
from dataclasses import dataclass
from mmap import mmap

from inference.weights.checkpoint import CheckpointInvalid

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ENTRIES_MAX = 1 << 20
"""Metadata keys or tensors; the largest models have some thousands."""
ALIGNMENT_DEFAULT = 32
SCALAR_FORMATS = dict(
    zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), ("<" + code for code in "BbHhIif?Qqd"), strict=True)
)
STRING, ARRAY = 8, 9

Scalar = int | float | bool | str


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """One tensor: `shape` slowest dimension first, `type_id` of ggml, byte offset in the file."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Metadata without arrays, and the tensors."""

    metadata: dict[str, Scalar]
    tensors: tuple[TensorPlace, ...]


def read_header(file: mmap) -> GgufHeader:
    """Parse the head of a mapped file. Raises CheckpointInvalid when it is not well formed."""
    try:
        return _Cursor(file).header()
    except (struct.error, UnicodeDecodeError) as error:
        raise CheckpointInvalid(f"not a well-formed GGUF file: {error}") from error


class _Cursor:
    """A position in the file that only moves forward."""

    def __init__(self, file: mmap) -> None:
        self._file = file
        self._at = 0

    def header(self) -> GgufHeader:
        if self._file[:4] != MAGIC:
            raise CheckpointInvalid("not a GGUF file")
        self._at = 4
        version = self._number("<I")
        if version not in VERSIONS:
            raise CheckpointInvalid(f"GGUF version {version} is not supported")
        tensor_count, key_count = self._number("<Q"), self._number("<Q")
        if max(tensor_count, key_count) > ENTRIES_MAX:
            raise CheckpointInvalid("the GGUF file claims more entries than any model has")
        metadata: dict[str, Scalar] = {}
        for _ in range(key_count):
            key = self._text()
            value = self._value(self._number("<I"))
            if value is not None:
                metadata[key] = value
        places = [self._tensor() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", ALIGNMENT_DEFAULT)
        if not isinstance(alignment, int) or alignment < 1:
            raise CheckpointInvalid(f"GGUF alignment {alignment!r} is not a positive number")
        data_start = self._at + -self._at % alignment
        return GgufHeader(
            metadata=metadata,
            tensors=tuple(
                TensorPlace(place.name, place.shape, place.type_id, data_start + place.offset)
                for place in places
            ),
        )

    def _tensor(self) -> TensorPlace:
        name = self._text()
        dimensions = [self._number("<Q") for _ in range(self._number("<I"))]
        type_id, offset = self._number("<I"), self._number("<Q")
        return TensorPlace(name, tuple(reversed(dimensions)), type_id, offset)

    def _value(self, kind: int) -> Scalar | None:
        """One value; None for an array, which is stepped over."""
        if kind == STRING:
            return self._text()
        if kind == ARRAY:
            element_kind, count = self._number("<I"), self._number("<Q")
            if element_kind == STRING:
                for _ in range(count):
                    self._advance(self._number("<Q"))
            else:
                self._advance(count * struct.calcsize(_scalar_format(element_kind)))
            return None
        (value,) = struct.unpack_from(_scalar_format(kind), self._file, self._at)
        self._advance(struct.calcsize(_scalar_format(kind)))
        scalar: Scalar = value
        return scalar

    def _number(self, number_format: str) -> int:
        (value,) = struct.unpack_from(number_format, self._file, self._at)
        self._at += struct.calcsize(number_format)
        number: int = value
        return number

    def _text(self) -> str:
        start = self._at + 8
        self._advance(self._number("<Q"))
        return self._file[start : self._at].decode()

    def _advance(self, count: int) -> None:
        if count > len(self._file) - self._at:
            raise CheckpointInvalid("the GGUF file ends inside its head")
        self._at += count


def _scalar_format(kind: int) -> str:
    if kind not in SCALAR_FORMATS:
        raise CheckpointInvalid(f"GGUF value type {kind} is not supported")
    return SCALAR_FORMATS[kind]
