"""Drawing tokens on GPU, without sorting a vocabulary and without waiting for the device.

A draw is an argmax of score plus noise: of each block of the vocabulary in parallel, then of those.
Rows with top-k, top-p or min-p first get the lowest logit that is kept, by bisection. Called by the
runner's sampler on CUDA; it keeps no state between calls.
"""

import torch
import triton
import triton.language as tl

from kernels.token_sampling import (
    GOLDEN,
    MIX_1,
    MIX_2,
    NOTHING_ALLOWED,
    DrawRows,
    check_draw_shapes,
)

DRAW_SPAN = 1024
SEARCH_SPAN = 8192
SEARCH_WARPS = 32
SEARCH_PASSES_MAX = 128
"""Of 128k logits bisection takes 9 passes, 19 at most; with an infinite one it might not end."""

_GOLDEN = tl.constexpr(GOLDEN)
_MIX_1 = tl.constexpr(MIX_1)
_MIX_2 = tl.constexpr(MIX_2)


@triton.jit
def noise_bits(key, token):  # type: ignore[no-untyped-def]  # types are those of each call
    """32 hashed bits per token as uint32: as `token_sampling.noise_bits`."""
    word = (token + 1).to(tl.uint64) * _GOLDEN + key.to(tl.uint64, bitcast=True)
    word = (word ^ (word >> 30)) * _MIX_1
    word = (word ^ (word >> 27)) * _MIX_2
    return ((word ^ (word >> 31)) >> 32).to(tl.uint32)


@triton.jit
def gumbel_noise(bits):  # type: ignore[no-untyped-def]  # types are those of each call
    """Gumbel noise in float32; right to 1e-5 where it is large, which is where it decides."""
    # One below 1, where float32 would round to it and the exponential be infinite.
    uniform = tl.minimum((bits.to(tl.float32) + 0.5) * 2.0**-32, 1.0 - 2.0**-24)
    # The series of -log(1 - u), whose difference loses a small u.
    series = 1 / 4 + uniform * (1 / 5 + uniform * (1 / 6))
    series = uniform * (1.0 + uniform * (1 / 2 + uniform * (1 / 3 + uniform * series)))
    exponential = tl.where(uniform < 1 / 16, series, -tl.log(1.0 - uniform))
    return -tl.log(exponential)


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def draw_block_kernel(  # type: ignore[no-untyped-def]  # types are those of each launch
    logits,
    floors,
    temperatures,
    noise_keys,
    tops,
    bests,
    best_ids,
    vocabulary,
    row_stride,
    span: tl.constexpr,
):
    """The best of one row's block: its highest logit, and score and id of the best perturbed one.

    Scores are relative to the block's highest logit, which keeps low temperatures exact.
    """
    row = tl.program_id(0)
    block = tl.program_id(1)
    token = block * span + tl.arange(0, span)
    logit = tl.load(
        logits + row.to(tl.int64) * row_stride + token,
        mask=token < vocabulary,
        other=float("-inf"),
    )
    kept = (logit >= tl.load(floors + row)) & (logit > float("-inf"))
    top = tl.max(tl.where(kept, logit, float("-inf")))
    score = logit - top
    temperature = tl.load(temperatures + row)
    if temperature > 0.0:
        bits = noise_bits(tl.load(noise_keys + row), token)
        score = score / temperature + gumbel_noise(bits)
    best, best_id = tl.max(tl.where(kept, score, float("-inf")), 0, return_indices=True)
    place = row * tl.num_programs(1) + block
    tl.store(tops + place, top)
    tl.store(bests + place, best)
    tl.store(best_ids + place, block * span + best_id)


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def draw_row_kernel(  # type: ignore[no-untyped-def]  # types are those of each launch
    tops,
    bests,
    best_ids,
    temperatures,
    drawn,
    blocks,
    span: tl.constexpr,
    nothing: tl.constexpr,
):
    """The best of a row's blocks, `nothing` if none has any."""
    row = tl.program_id(0)
    block = tl.arange(0, span)
    inside = block < blocks
    place = row * blocks + block
    top = tl.load(tops + place, mask=inside, other=float("-inf"))
    best = tl.load(bests + place, mask=inside, other=float("-inf"))
    temperature = tl.load(temperatures + row)
    highest = tl.max(top)
    lower = (top - highest) / tl.where(temperature > 0.0, temperature, 1.0)
    score = tl.where(top > float("-inf"), best + lower, float("-inf"))
    chosen = tl.argmax(score, 0)
    token = tl.load(best_ids + row * blocks + chosen).to(tl.int64)
    tl.store(drawn + row, tl.where(highest > float("-inf"), token, nothing))


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def floor_kernel(  # type: ignore[no-untyped-def]  # types are those of each launch
    logits,
    limited,
    temperatures,
    top_ks,
    top_ps,
    min_ps,
    floors,
    vocabulary,
    row_stride,
    passes_max,
    span: tl.constexpr,
):
    """The lowest logit that top-k, then min-p, then top-p keep in one of the limited rows."""
    row = tl.load(limited + tl.program_id(0))
    places = logits + row.to(tl.int64) * row_stride
    temperature = tl.load(temperatures + row)
    top_k = tl.load(top_ks + row)
    top_p = tl.load(top_ps + row)
    min_p = tl.load(min_ps + row)
    highest = tl.full([span], float("-inf"), tl.float32)
    lowest = tl.full([span], float("inf"), tl.float32)
    for first in range(0, vocabulary, span):
        logit = _chunk(places, first, vocabulary, span)
        highest = tl.maximum(highest, logit)
        lowest = tl.minimum(lowest, tl.where(logit > float("-inf"), logit, float("inf")))
    top = tl.max(highest)
    floor = tl.min(lowest)
    if (top_k > 0) & (top_k < vocabulary):
        floor = _lowest_kept(
            places, vocabulary, floor, top, 0.0, top_k.to(tl.float32), passes_max, False, span
        )
    if min_p > 0.0:
        floor = tl.maximum(floor, top + temperature * tl.log(min_p))
    if top_p < 1.0:
        mass = tl.zeros([span], tl.float32)
        for first in range(0, vocabulary, span):
            logit = _chunk(places, first, vocabulary, span)
            mass += tl.where(logit >= floor, tl.exp((logit - top) / temperature), 0.0)
        # All tokens below this together weigh less than half of 1 - top_p.
        reach = top - temperature * tl.log(2.0 * vocabulary / (1.0 - top_p))
        floor = _lowest_kept(
            places,
            vocabulary,
            tl.maximum(floor, reach),
            top,
            temperature,
            top_p * tl.sum(mass),
            passes_max,
            True,
            span,
        )
    tl.store(floors + row, floor)


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def _lowest_kept(  # type: ignore[no-untyped-def]  # types are those of each call
    places,
    vocabulary,
    low,
    high,
    temperature,
    limit,
    passes_max,
    weighs: tl.constexpr,
    span: tl.constexpr,
):
    """The lowest logit from `low` on with less than `limit` above it, counted or weighed.

    Bisection between `low` and `high`, the row's maximum, which go to the next logits there are: it
    ends on one of them, exactly.
    """
    top = high
    passes = 0
    while (low < high) & (passes < passes_max):
        middle = low * 0.5 + high * 0.5
        middle = tl.where(middle < high, middle, low)
        above = tl.zeros([span], tl.float32)
        below = tl.full([span], float("-inf"), tl.float32)
        beyond = tl.full([span], float("inf"), tl.float32)
        for first in range(0, vocabulary, span):
            logit = _chunk(places, first, vocabulary, span)
            is_above = logit > middle
            if weighs:
                above += tl.where(is_above, tl.exp((logit - top) / temperature), 0.0)
            else:
                above += tl.where(is_above, 1.0, 0.0)
            below = tl.maximum(below, tl.where(is_above | (logit < low), float("-inf"), logit))
            beyond = tl.minimum(beyond, tl.where(is_above, logit, float("inf")))
        next_below = tl.max(below)
        next_above = tl.min(beyond)
        keeps_all_above = tl.sum(above) < limit
        is_last = keeps_all_above & (next_below == float("-inf"))
        high = tl.where(keeps_all_above, tl.where(is_last, next_above, next_below), high)
        low = tl.where(is_last | (keeps_all_above == 0), next_above, low)
        passes += 1
    return high


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def _chunk(places, first, vocabulary, span: tl.constexpr):  # type: ignore[no-untyped-def]  # types are those of each call
    token = first + tl.arange(0, span)
    return tl.load(places + token, mask=token < vocabulary, other=float("-inf"))


def draw_triton(logits: torch.Tensor, how: DrawRows) -> torch.Tensor:
    """One token id per row of logits float32 [rows, vocabulary], int64; NOTHING_ALLOWED for a row
    of -inf alone. Raises ValueError for what does not fit."""
    check_draw_shapes(logits, how)
    vocabulary = logits.shape[1]
    rows = logits.shape[0]
    drawn = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if not rows:
        return drawn
    floors = logits.new_full((rows,), float("-inf"))
    if how.limited.shape[0]:
        floor_kernel[(how.limited.shape[0],)](
            logits,
            how.limited,
            how.temperatures,
            how.top_ks,
            how.top_ps,
            how.min_ps,
            floors,
            vocabulary,
            logits.stride(0),
            SEARCH_PASSES_MAX,
            span=SEARCH_SPAN,
            num_warps=SEARCH_WARPS,
        )
    blocks = triton.cdiv(vocabulary, DRAW_SPAN)
    tops, bests = logits.new_empty(2, rows, blocks).unbind()
    best_ids = torch.empty(rows, blocks, dtype=torch.int32, device=logits.device)
    draw_block_kernel[(rows, blocks)](
        logits,
        floors,
        how.temperatures,
        how.noise_keys,
        tops,
        bests,
        best_ids,
        vocabulary,
        logits.stride(0),
        span=DRAW_SPAN,
    )
    draw_row_kernel[(rows,)](
        tops,
        bests,
        best_ids,
        how.temperatures,
        drawn,
        blocks,
        span=triton.next_power_of_2(blocks),
        nothing=NOTHING_ALLOWED,
    )
    return drawn
