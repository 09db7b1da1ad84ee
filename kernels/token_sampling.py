"""Adjusting logits and drawing tokens for many rows at once: what the GPU kernels compute.

Plain tensors only: whoever has sampling parameters lays them out as below. The noise of a token is
a hash of its row's key and its id in integers, the same here and on GPU bit for bit, so a draw
depends on no neighbour. The references are the oracle of the tests and nothing else calls them.
"""

import math
from dataclasses import dataclass

import torch

NOISE_BITS = 32
WORD_TOKENS = 32
"""Tokens whose bits share one word of a mask."""
VOCABULARY_MAX = 1 << 20
NOTHING_ALLOWED = -1
"""Drawn for a row of which no token is left."""


@dataclass(frozen=True, slots=True)
class TokenEdits:
    """Changes to single logits, one entry for each (row, token), all tensors [entries].

    A logit becomes logit + bias, then is divided by its repetition if above 0, else multiplied by
    it, then is lowered by its penalty. Without effect are bias 0, repetition 1 and penalty 0; a
    bias of -inf bans the token. `rows` and `token_ids` are int32, the others float32.
    """

    rows: torch.Tensor
    token_ids: torch.Tensor
    biases: torch.Tensor
    repetitions: torch.Tensor
    penalties: torch.Tensor


@dataclass(frozen=True, slots=True)
class TokenMasks:
    """For some rows the only tokens that may be drawn: `rows` int32 [masks], `words` int32
    [masks, vocabulary / WORD_TOKENS rounded up], the lowest bit of a word for its first token."""

    rows: torch.Tensor
    words: torch.Tensor


@dataclass(frozen=True, slots=True)
class DrawRows:
    """How to draw from each row, all [rows]: `temperatures` (0 is greedy), `top_ps` (1 is all) and
    `min_ps` (0 is all) float32, `top_ks` int32 (0 is all), `noise_keys` int64.

    `limited` int32 [any] lists the rows of positive temperature with a top-k, top-p or min-p: it
    is known before the step, so that nobody has to wait for the GPU to say.
    """

    temperatures: torch.Tensor
    top_ks: torch.Tensor
    top_ps: torch.Tensor
    min_ps: torch.Tensor
    noise_keys: torch.Tensor
    limited: torch.Tensor


def adjust_logits_reference(
    logits: torch.Tensor, edits: TokenEdits | None, masks: TokenMasks | None
) -> None:
    """Applies the edits, then the masks, to logits float32 [rows, vocabulary] in place."""
    check_adjustments(logits, edits, masks)
    if edits is not None:
        places = (edits.rows.long(), edits.token_ids.long())
        biased = logits[places] + edits.biases
        repeated = torch.where(biased > 0, biased / edits.repetitions, biased * edits.repetitions)
        logits[places] = repeated - edits.penalties
    if masks is not None:
        tokens = torch.arange(logits.shape[1], device=logits.device)
        allowed = (masks.words[:, tokens // WORD_TOKENS] >> (tokens % WORD_TOKENS)) & 1
        rows = masks.rows.long()
        logits[rows] = logits[rows].masked_fill(allowed == 0, -math.inf)


def draw_reference(logits: torch.Tensor, how: DrawRows) -> torch.Tensor:
    """One token id per row of logits [rows, vocabulary], int64; in float64.

    The GPU computes in float32: it may draw another token only where two perturbed scores, or the
    mass above a token and `top_p`, lie within 1e-4 of each other.
    """
    check_draw_shapes(logits, how)
    drawn = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)
    token_ids = torch.arange(logits.shape[1], device=logits.device)
    for row, temperature in enumerate(how.temperatures.tolist()):
        wide = logits[row].double()
        top = wide.max()
        if top == -math.inf:
            drawn[row] = NOTHING_ALLOWED
        elif temperature == 0.0:
            drawn[row] = wide.argmax()
        else:
            scores = (wide - top) / temperature
            floor = floor_reference(
                scores,
                top_k=int(how.top_ks[row]),
                top_p=float(how.top_ps[row]),
                min_p=float(how.min_ps[row]),
            )
            noise = gumbel_noise(noise_bits(how.noise_keys[row], token_ids))
            drawn[row] = (scores + noise).where(scores >= floor, -math.inf).argmax()
    return drawn


def floor_reference(scores: torch.Tensor, *, top_k: int, top_p: float, min_p: float) -> float:
    """The lowest score that top-k, then min-p, then top-p keep, of scores [n] with maximum 0.

    Top-p keeps the most probable of what the others left, as few as reach `top_p` together.
    Scores equal to the last one kept are kept too, so that the order of equals never matters.
    """
    floor = -math.inf
    if 0 < top_k < scores.shape[0]:
        floor = float(scores.topk(top_k).values[-1])
    if min_p > 0.0:
        floor = max(floor, math.log(min_p))
    if top_p >= 1.0:
        return floor
    ranked = scores[scores >= floor].sort(descending=True).values
    masses = ranked.softmax(-1)
    before = masses.cumsum(-1) - masses
    return float(ranked[int((before < top_p).sum()) - 1])


def gumbel_noise(bits: torch.Tensor) -> torch.Tensor:
    """Gumbel noise in float64 of hashed bits (int64), so that argmax(score + noise) samples.

    From an exponential near 0 rather than a uniform near 1: the large values decide, and there a
    uniform has no digits left.
    """
    uniform = (bits.double() + 0.5) * 2.0**-NOISE_BITS
    return -torch.log(-torch.log1p(-uniform))


def noise_bits(keys: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
    """NOISE_BITS hashed bits as int64 for keys and token ids (int64) that broadcast.

    Splitmix64's output function over a counter (Steele, Lea, Flood: Fast splittable pseudorandom
    number generators, 2014). int64 arithmetic wraps as 64-bit words do; only the right shift needs
    its sign bits masked off.
    """
    word = (token_ids + 1) * _signed(GOLDEN) + keys
    word = (word ^ _shifted(word, 30)) * _signed(MIX_1)
    word = (word ^ _shifted(word, 27)) * _signed(MIX_2)
    return _shifted(word ^ _shifted(word, 31), 64 - NOISE_BITS)


GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB


def check_adjustments(
    logits: torch.Tensor, edits: TokenEdits | None, masks: TokenMasks | None
) -> None:
    """Raises ValueError unless shapes and dtypes fit. Reads no tensor's values."""
    _check_logits(logits)
    if edits is not None:
        _check(edits, {"rows": torch.int32, "token_ids": torch.int32}, edits.rows.shape)
    if masks is not None:
        words = -(-logits.shape[1] // WORD_TOKENS)
        if masks.words.shape != (masks.rows.shape[0], words):
            raise ValueError(f"each mask must have {words} words")
        if masks.rows.dtype != torch.int32 or masks.words.dtype != torch.int32:
            raise ValueError("masks must be int32")


def check_draw_shapes(logits: torch.Tensor, how: DrawRows) -> None:
    """Raises ValueError unless shapes and dtypes fit. Reads no tensor's values."""
    _check_logits(logits)
    integers = {"top_ks": torch.int32, "noise_keys": torch.int64, "limited": torch.int32}
    _check(how, integers, logits.shape[:1], but="limited")


def _check_logits(logits: torch.Tensor) -> None:
    if logits.dim() != 2 or logits.dtype != torch.float32 or logits.stride(1) != 1:
        raise ValueError("logits must be float32 [rows, vocabulary], each row dense")
    if not 0 < logits.shape[1] <= VOCABULARY_MAX:
        raise ValueError(f"a vocabulary has 1 to {VOCABULARY_MAX} tokens")


def _check(
    tensors: TokenEdits | DrawRows,
    integers: dict[str, torch.dtype],
    shape: torch.Size,
    but: str = "",
) -> None:
    for name in tensors.__slots__:
        tensor: torch.Tensor = getattr(tensors, name)
        if tensor.dim() != 1 or (name != but and tensor.shape != shape):
            raise ValueError(f"{name} {tuple(tensor.shape)} must be {tuple(shape)}")
        if tensor.dtype != integers.get(name, torch.float32):
            raise ValueError(f"{name} must be {integers.get(name, torch.float32)}")


def _shifted(word: torch.Tensor, bits: int) -> torch.Tensor:
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
