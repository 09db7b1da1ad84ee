"""Which sequences of a step a CPU's attention computes by one product, and over which blocks.

Sequences with one query (decode) are computed together, padded to the longest of their group; one
with several queries is computed alone. Blocks that many decoding sequences begin with are read
once, for the queries of all of them (Juravsky et al., "Hydragen", 2024). Decided once per step.
"""

import math
from dataclasses import dataclass

import torch

from kernels.gathered_kv import GatheredKv
from kernels.paged_attention import AttentionBatch

PADDING_RATIO_MAX = 2
"""A decode group is split where padding would make a sequence read more than this many times."""
FEW_QUERIES_MAX = 8
"""Up to so many tokens that follow others in the cache are drafts to check, as a rule: bit-equality
with decoding is worth 2 ms of a step of 28 then (four drafts at context 128, SmolLM2)."""
GROUP_TOKENS_MAX = 2048
"""What a decode group gathers should stay in the processor's caches until it is multiplied: at 16
streams of 512 tokens, groups of so many take a fifth less than one of all."""
SHARED_SAVING_TOKENS_MIN = 2048
"""A prefix is read once for all where that saves reading so many tokens. What is less lies in the
caches anyway, and apart each sequence gets the same bits in any company."""


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Sequences computed by one product.

    `rows` picks their queries, `kv` what each of them has, as many blocks each, after `shared`,
    which all of them begin with. `mask` is 0 where a query may look and -inf elsewhere:
    [1, sequences or queries, 1, context], or None where all of a sequence's tokens are queries.
    With `as_decoded` each of several queries is computed by the products that it would have alone.
    """

    rows: slice | torch.Tensor
    sequences: int
    queries: int
    kv: GatheredKv
    mask: torch.Tensor | None
    shared: GatheredKv | None = None
    as_decoded: bool = False


def attention_groups(
    batch: AttentionBatch, block_tokens: int, *, invariant: bool
) -> tuple[list[AttentionGroup], list[GatheredKv]]:
    """(groups that cover the step, prefixes that some of them share and that are read first)."""
    starts = batch.query_starts.tolist()
    contexts = batch.context_lengths.tolist()
    block_counts = [math.ceil(context / block_tokens) for context in contexts]
    single = [s for s in range(len(contexts)) if starts[s + 1] - starts[s] == 1]
    groups: list[AttentionGroup] = []
    prefixes: list[GatheredKv] = []
    for shared_blocks, sharers in (
        [(0, single)] if invariant else _alike(batch, single, block_tokens)
    ):
        shared = None
        if shared_blocks:
            shared = GatheredKv(batch.block_tables[sharers[0], :shared_blocks].long())
            prefixes.append(shared)
        own_counts = [count - shared_blocks for count in block_counts]
        groups += (
            _decode_group(
                batch,
                members,
                [starts[s] for s in members],
                range(shared_blocks, block_counts[longest]),
                block_tokens,
                shared,
            )
            for longest, members in _similar_lengths(
                sharers, own_counts, GROUP_TOKENS_MAX // block_tokens
            )
        )
    for s in range(len(contexts)):
        if starts[s + 1] - starts[s] > 1:
            rows = range(starts[s], starts[s + 1])
            groups += _several_queries(batch, s, rows, contexts[s], block_tokens, invariant)
    return groups, prefixes


def _alike(
    batch: AttentionBatch, sequences: list[int], block_tokens: int
) -> list[tuple[int, list[int]]]:
    """(blocks that all members begin with, members): each sequence once, under 0 those for which it
    would save too little. The block that a sequence still writes to is never among them."""
    full = ((batch.context_lengths - 1) // block_tokens).tolist()
    prefixes = {s: batch.block_tables[s, : full[s]].tolist() for s in sequences}
    runs: list[tuple[int, list[int]]] = []
    for sequence in sorted(sequences, key=prefixes.__getitem__):
        blocks, members = runs[-1] if runs else (0, [])
        # In this order, what the first and the last begin with all between them begin with.
        common = _common(prefixes[members[0]], prefixes[sequence]) if members else 0
        if common and common * len(members) >= blocks * (len(members) - 1):
            runs[-1] = common, [*members, sequence]
        else:
            runs.append((0, [sequence]))
    saving_min = SHARED_SAVING_TOKENS_MIN // block_tokens
    alike = [run for run in runs if run[0] * (len(run[1]) - 1) >= saving_min]
    together = {sequence for _, members in alike for sequence in members}
    return [(0, [s for s in sequences if s not in together]), *alike]


def _common(one: list[int], other: list[int]) -> int:
    """How many elements both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _similar_lengths(
    sequences: list[int], block_counts: list[int], blocks_max: int
) -> list[tuple[int, list[int]]]:
    """(longest, members in ascending order): groups within PADDING_RATIO_MAX, and of at most
    `blocks_max` blocks unless one sequence has more."""
    groups: list[tuple[int, list[int]]] = []
    for sequence in sorted(sequences, key=lambda s: -block_counts[s]):
        longest, members = groups[-1] if groups else (sequence, [])
        width = block_counts[longest]
        similar = width <= PADDING_RATIO_MAX * block_counts[sequence]
        if members and similar and width * (len(members) + 1) <= blocks_max:
            members.append(sequence)
        else:
            groups.append((sequence, [sequence]))
    return [(longest, sorted(members)) for longest, members in groups]


def _decode_group(
    batch: AttentionBatch,
    members: list[int],
    rows: list[int],
    blocks: range,
    block_tokens: int,
    shared: GatheredKv | None,
) -> AttentionGroup:
    last_positions = batch.context_lengths[members] - 1
    return AttentionGroup(
        rows=_slice_if_adjacent(rows),
        sequences=len(members),
        queries=1,
        kv=GatheredKv(batch.block_tables[members, blocks.start : blocks.stop].flatten().long()),
        mask=_causal_mask(last_positions[None, :, None, None], blocks.stop * block_tokens),
        shared=shared,
    )


def _several_queries(
    batch: AttentionBatch,
    sequence: int,
    rows: range,
    context: int,
    block_tokens: int,
    invariant: bool,
) -> list[AttentionGroup]:
    """The last block of what is computed, and drafts, by the products of decoding; what is before
    it by those of prefill.

    What a prefix hit leaves to compute of a prompt is its last block, so that it gets the same bits
    from the cache as it got when nothing was there: in int8 a rounding apart is soon a token apart.
    """
    position = context - len(rows)
    few = len(rows) <= FEW_QUERIES_MAX and position > 0
    last_block = (context - 1) // block_tokens * block_tokens
    if invariant or few or position >= last_block:
        return [_queries_group(batch, sequence, rows, context, block_tokens, as_decoded=True)]
    split = last_block - position
    return [
        _queries_group(batch, sequence, rows[:split], last_block, block_tokens, as_decoded=False),
        _queries_group(batch, sequence, rows[split:], context, block_tokens, as_decoded=True),
    ]


def _queries_group(
    batch: AttentionBatch,
    sequence: int,
    rows: range,
    context: int,
    block_tokens: int,
    *,
    as_decoded: bool,
) -> AttentionGroup:
    blocks = math.ceil(context / block_tokens)
    positions = torch.arange(context - len(rows), context)
    mask = None
    if as_decoded or len(rows) < context:
        mask = _causal_mask(positions[None, :, None, None], blocks * block_tokens)
    return AttentionGroup(
        rows=slice(rows.start, rows.stop),
        sequences=1,
        queries=len(rows),
        kv=GatheredKv(batch.block_tables[sequence, :blocks].long()),
        mask=mask,
        as_decoded=as_decoded,
    )


def _causal_mask(positions: torch.Tensor, width: int) -> torch.Tensor:
    """0 at the keys up to each position, -inf after it and over padding."""
    hidden = torch.arange(width) > positions
    return torch.zeros(hidden.shape).masked_fill_(hidden, -math.inf)


def _slice_if_adjacent(rows: list[int]) -> slice | torch.Tensor:
    """Rows in one run need no copy."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return slice(rows[0], rows[-1] + 1)
    return torch.tensor(rows)
