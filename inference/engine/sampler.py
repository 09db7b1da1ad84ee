"""Draws the next token: greedy, or temperature, top-k and top-p with counter-based noise.

The noise of a token is a hash of (seed, choice, position, token id) in integers, so a seeded
request draws the same tokens alone, in any batch, after preemption, and on any device. It must
never keep state between calls. Called by the runner with the logits of one step.
"""

from collections.abc import Sequence

import torch

from inference.engine.step import SampleSpec

WORD = (1 << 64) - 1
NOISE_BITS = 32


def sample(logits: torch.Tensor, specs: Sequence[SampleSpec]) -> list[int]:
    """One token id per row of `logits` [rows, vocab_size], drawn as its spec says."""
    assert logits.shape[0] == len(specs)
    best, best_ids = logits.max(dim=-1)
    drawn: list[int] = best_ids.tolist()
    for row, (spec, top) in enumerate(zip(specs, best.tolist(), strict=True)):
        if spec.temperature > 0.0:
            drawn[row] = _draw(logits[row], top, spec)
    return drawn


def _draw(logits: torch.Tensor, top: float, spec: SampleSpec) -> int:
    # Shifting first keeps a tiny temperature from overflowing; float64 keeps close scores apart.
    scores = (logits.double() - top) / spec.temperature
    keep = kept(scores, top_p=spec.top_p, top_k=spec.top_k)
    if keep is None:
        token_ids = torch.arange(scores.shape[0], device=scores.device)
    else:
        token_ids = keep.nonzero().flatten()
        scores = scores[token_ids]
    noise = gumbel_noise(noise_key(spec.seed, position=spec.position), token_ids)
    return int(token_ids[(scores + noise).argmax()])


def kept(scores: torch.Tensor, *, top_p: float, top_k: int) -> torch.Tensor | None:
    """Mask of the scores [n] that top-k and then top-p leave, None when that is all of them.

    `top_k` 0 means all. Top-p keeps the most probable tokens, as few as reach `top_p` together, out
    of what top-k left. Scores equal to the last one kept are kept too, so that the order of
    equals never matters.
    """
    count = scores.shape[0]
    limited = 0 < top_k < count
    if not limited and top_p >= 1.0:
        return None
    masses = scores.softmax(-1)
    if limited:
        floor = scores.topk(top_k).values[-1]
        masses = masses.where(scores >= floor, 0.0)
    if top_p < 1.0:
        masses = masses / masses.sum()
        # All tokens below this weigh less than 1 - top_p together, so top-p never gets to them, and
        # sorting the few others is much quicker than sorting a vocabulary (3.7 ms). Half of the
        # bound, so that rounding cannot leave none.
        likely = masses[masses >= 0.5 * (1.0 - top_p) / count]
        ranked = likely.sort(descending=True).values
        before = ranked.cumsum(-1) - ranked
        least = ranked[int((before < top_p).sum()) - 1]
        return masses >= least
    return scores >= floor


def noise_key(seed: int, *, choice: int = 0, position: int) -> int:
    """64 bits that stand for one draw; `choice` counts the answers asked for in one call."""
    return _mixed(_mixed(_mixed(seed) + choice) + position)


def gumbel_noise(key: int, token_ids: torch.Tensor) -> torch.Tensor:
    """Gumbel noise in float64 for each token id (int64), so that argmax(score + noise) samples.

    Computed from an exponential near 0 rather than a uniform near 1: the large values decide, and
    there a uniform has no digits left.
    """
    bits = noise_bits(key, token_ids)
    uniform = bits.double().add_(0.5).mul_(2.0**-NOISE_BITS)
    return uniform.neg_().log1p_().neg_().log_().neg_()


def noise_bits(key: int, token_ids: torch.Tensor) -> torch.Tensor:
    """NOISE_BITS hashed bits per token id as int64: splitmix64's output function over a counter.

    int64 arithmetic wraps as 64-bit words do; only the right shift needs its sign bits masked off.
    (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014.)
    """
    word = (token_ids + 1) * _signed(GOLDEN) + _signed(key)
    word = (word ^ _shifted(word, 30)) * _signed(MIX_1)
    word = (word ^ _shifted(word, 27)) * _signed(MIX_2)
    return _shifted(word ^ _shifted(word, 31), 64 - NOISE_BITS)


GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB


def _mixed(word: int) -> int:
    """The same function on one Python integer."""
    word = (word + GOLDEN) & WORD
    word = ((word ^ (word >> 30)) * MIX_1) & WORD
    word = ((word ^ (word >> 27)) * MIX_2) & WORD
    return word ^ (word >> 31)


def _shifted(word: torch.Tensor, bits: int) -> torch.Tensor:
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
