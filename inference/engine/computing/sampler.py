"""Draws the next tokens: penalties, biases and bans, then greedy or by counter-based noise.

The noise of a token is a hash of (seed, choice, position, token id) in integers, so a seeded
request draws the same tokens alone, in any batch, after preemption, with drafts or without, and on
any device. It must never keep state between calls. Called by the runner with the logits of a step.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch

from inference.contracts import TokenLogprob
from inference.engine.step import Drawn, SampleSpec

WORD = (1 << 64) - 1
NOISE_BITS = 32


class NothingAllowed(Exception):
    """Grammar and bans together leave no token to draw."""


def sample(logits: torch.Tensor, specs: Sequence[SampleSpec]) -> list[Drawn]:
    """One token per row of `logits` [rows, vocab_size], drawn as its spec says.

    Changes `logits`: afterwards they are what the log probabilities were taken of. Raises
    NothingAllowed.
    """
    assert logits.shape[0] == len(specs)
    for row, spec in enumerate(specs):
        adjust(logits[row], spec)
    best, best_ids = logits.max(dim=-1)
    token_ids: list[int] = best_ids.tolist()
    for row, (spec, top) in enumerate(zip(specs, best.tolist(), strict=True)):
        if top == -math.inf:
            raise NothingAllowed
        if spec.temperature > 0.0:
            token_ids[row] = _draw(logits[row], top, spec)
    return [
        Drawn(token_id, None if spec.logprobs is None else logprob_of(logits[row], token_id, spec))
        for row, (token_id, spec) in enumerate(zip(token_ids, specs, strict=True))
    ]


def adjust(logits: torch.Tensor, spec: SampleSpec) -> None:
    """Applies biases, penalties, bans and the grammar to one row [vocab_size], in place.

    Presence and frequency penalties count the output (OpenAI's API reference), the repetition
    penalty prompt and output (Keskar et al., CTRL, 2019).
    """
    if spec.logit_bias:
        token_ids, biases = zip(*spec.logit_bias, strict=True)
        logits[list(token_ids)] += torch.tensor(biases, dtype=logits.dtype, device=logits.device)
    if spec.repetition_penalty != 1.0:
        seen = sorted({*spec.prompt_ids, *spec.output_ids})
        scores = logits[seen]
        factor = spec.repetition_penalty
        logits[seen] = torch.where(scores > 0, scores / factor, scores * factor)
    if spec.output_ids and (spec.presence_penalty or spec.frequency_penalty):
        counts = Counter(spec.output_ids)
        penalties = [
            spec.presence_penalty + spec.frequency_penalty * count for count in counts.values()
        ]
        logits[list(counts)] -= torch.tensor(penalties, dtype=logits.dtype, device=logits.device)
    if spec.banned_ids:
        logits[list(spec.banned_ids)] = -math.inf
    if spec.allowed:
        bits = np.unpackbits(np.frombuffer(spec.allowed, dtype=np.uint8), bitorder="little")
        allowed = torch.from_numpy(bits[: logits.shape[0]]).to(logits.device, torch.bool)
        logits.masked_fill_(~allowed, -math.inf)


def logprob_of(logits: torch.Tensor, token_id: int, spec: SampleSpec) -> TokenLogprob:
    """The log probability of a drawn token, and of as many others as the spec asks for."""
    assert spec.logprobs is not None
    logprobs = logits.float().log_softmax(-1)
    values, token_ids = logprobs.topk(spec.logprobs)
    return TokenLogprob(
        token_id,
        float(logprobs[token_id]),
        tuple(zip(token_ids.tolist(), values.tolist(), strict=True)),
    )


def _draw(logits: torch.Tensor, top: float, spec: SampleSpec) -> int:
    # Shifting first keeps a tiny temperature from overflowing; float64 keeps close scores apart.
    scores = (logits.double() - top) / spec.temperature
    keep = kept(scores, top_p=spec.top_p, top_k=spec.top_k, min_p=spec.min_p)
    if keep is None:
        token_ids = torch.arange(scores.shape[0], device=scores.device)
    else:
        token_ids = keep.nonzero().flatten()
        scores = scores[token_ids]
    key = noise_key(spec.seed, choice=spec.choice, position=spec.position)
    return int(token_ids[(scores + gumbel_noise(key, token_ids)).argmax()])


def kept(
    scores: torch.Tensor, *, top_p: float, top_k: int, min_p: float = 0.0
) -> torch.Tensor | None:
    """Mask of the scores [n] that top-k, min-p and then top-p leave, None when that is all of them.

    `top_k` 0 means all. Min-p keeps what is at least that fraction as probable as the best. Top-p
    keeps the most probable tokens, as few as reach `top_p` together, out of what the others left.
    Scores equal to the last one kept are kept too, so that the order of equals never matters.
    """
    count = scores.shape[0]
    floor = -math.inf
    if 0 < top_k < count:
        floor = float(scores.topk(top_k).values[-1])
    if min_p > 0.0:
        floor = max(floor, float(scores.max()) + math.log(min_p))
    if top_p >= 1.0:
        return None if floor == -math.inf else scores >= floor
    masses = scores.softmax(-1)
    if floor > -math.inf:
        masses = masses.where(scores >= floor, 0.0)
        masses = masses / masses.sum()
    # All tokens below this weigh less than 1 - top_p together, so top-p never gets to them, and
    # sorting the few others is much quicker than sorting a vocabulary (3.7 ms). Half of the
    # bound, so that rounding cannot leave none.
    likely = masses[masses >= 0.5 * (1.0 - top_p) / count]
    ranked = likely.sort(descending=True).values
    before = ranked.cumsum(-1) - ranked
    least = ranked[int((before < top_p).sum()) - 1]
    return masses >= least


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
