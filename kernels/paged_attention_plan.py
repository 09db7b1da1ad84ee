"""How one step's attention is cut into programs of a GPU: tiles of queries, splits of keys.

Pure arithmetic on lengths, so that it is tested without a device; it must never read a tensor. The
Triton path asks it once per step, the tests of the kernels too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

PROGRAMS_PER_PROCESSOR = 2
"""Programs that a multiprocessor should have to hide each other's waits for memory."""
SPLITS_MAX = 64
"""What one combining program holds at once: 64 partial rows of 128 are 32 registers a thread."""
COMBINE_WARPS = 8
SPLIT_TOKENS_MIN = 256
"""Shorter splits would spend their time on starting and on being combined."""
SHARING_MAX = 32
"""Query heads per KV head: they are rows of one tile."""


@dataclass(frozen=True, slots=True)
class Card:
    """What the cut depends on. `native_float8` says whether the card converts float8 by itself."""

    processors: int
    native_float8: bool
    split_tokens_min: int = SPLIT_TOKENS_MIN


@dataclass(frozen=True, slots=True)
class TileShape:
    """How the kernel cuts its work: `tokens` queries of one sequence, `keys` read per round.

    `rows` is tokens * sharing rounded up to a power of two, at least the 16 of a tensor-core tile.
    """

    tokens: int
    rows: int
    keys: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class TileGroup:
    """Tiles of one shape, computed by one launch.

    `places` are (sequence, index of its first query within the sequence's share). Each tile's keys
    are read in up to `splits` parts of `split_tokens`; those beyond its context have nothing to do.
    `queries_max` is the longest share of a sequence.
    """

    shape: TileShape
    places: tuple[tuple[int, int], ...]
    queries_max: int
    splits: int
    split_tokens: int


def tile_shapes(sharing: int, element_bytes: int) -> tuple[TileShape, TileShape]:
    """(for sequences with few queries, for those with many) by the size of the queries' elements.

    The widest that spill no register and leave room for two programs per multiprocessor, on sm_80
    and sm_90 with heads of 128. Sixty-four rows are what a warp group of sm_90 multiplies at once;
    float32 is multiplied outside the tensor cores, where a copy in flight costs the registers.
    """
    if not 1 <= sharing <= SHARING_MAX:
        raise ValueError(f"{sharing} query heads per KV head are not 1 to {SHARING_MAX}")
    few = max(16, _power_of_two_from(sharing))
    if element_bytes == 4:
        few_shape, many_shape = (
            TileShape(rows // sharing, rows, keys=16, warps=rows // 4, stages=1)
            for rows in (few, 32)
        )
        return few_shape, many_shape
    return (
        TileShape(few // sharing, few, keys=64, warps=4, stages=3),
        TileShape(64 // sharing, 64, keys=64, warps=4, stages=2),
    )


def cut(
    counts: Sequence[int],
    contexts: Sequence[int],
    *,
    kv_heads: int,
    shapes: tuple[TileShape, TileShape],
    card: Card,
) -> list[TileGroup]:
    """Tiles for sequences with `counts` queries at the ends of `contexts` tokens.

    Decodes and prefills of one step come as two groups, so that a decode does not pay for the rows
    of a prefill's tile.
    """
    few, many = shapes
    groups = []
    for shape, members in (
        (few, [s for s, count in enumerate(counts) if count <= few.tokens]),
        (many, [s for s, count in enumerate(counts) if count > few.tokens]),
    ):
        if not members:
            continue
        places = tuple(
            (sequence, offset)
            for sequence in members
            for offset in range(0, counts[sequence], shape.tokens)
        )
        reads = [contexts[sequence] for sequence, _ in places]
        length = split_tokens(reads, kv_heads, splits_max(len(places), kv_heads, card), card)
        splits = -(-max(reads) // length)
        queries_max = max(counts[sequence] for sequence in members)
        groups.append(TileGroup(shape, places, queries_max, splits, length))
    return groups


def splits_max(tiles: int, kv_heads: int, card: Card) -> int:
    """Into how many parts the keys of a tile may be split, whatever the contexts turn out to be.

    Twice what an even load needs to fill the card, so that one long context among short ones can
    be split as well; not more, since each part of each tile is a program even when it is empty.
    """
    wanted = 2 * PROGRAMS_PER_PROCESSOR * card.processors
    return min(SPLITS_MAX, -(-wanted // (tiles * kv_heads)))


def split_tokens(reads: Sequence[int], kv_heads: int, splits: int, card: Card) -> int:
    """The length of a split such that all keys, spread evenly, just fill the card.

    `reads` are the context lengths of the tiles; the longest takes at most `splits` parts. A
    multiple of the card's least length.
    """
    programs = PROGRAMS_PER_PROCESSOR * card.processors
    even = -(-sum(reads) * kv_heads // programs)
    length = max(1, even, -(-max(reads) // splits))
    return -(-length // card.split_tokens_min) * card.split_tokens_min


def _power_of_two_from(count: int) -> int:
    return 1 << (count - 1).bit_length()
