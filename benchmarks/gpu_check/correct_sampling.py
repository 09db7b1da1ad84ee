"""Noise bit for bit, draws and edits of logits on the device against their references."""

import dataclasses
from functools import partial

import torch

from benchmarks.gpu_check.findings import Section
from benchmarks.gpu_check.sizes import Sizes
from benchmarks.gpu_check.timing import Place
from kernels import token_sampling
from kernels.logit_edits_triton import adjust_logits_triton
from kernels.token_sampling import NOTHING_ALLOWED, DrawRows, TokenEdits, TokenMasks
from kernels.token_sampling_triton import draw_triton
from tests.kernels.sampling_cases import edited_rows, sampled_rows
from tests.kernels.sampling_interpreted import noise_kernel, unexcused

NOISE_ERROR_MAX = 1e-4
NOISE_ERROR_MAX_WHERE_IT_DECIDES = 1e-5
EDIT_ERROR_MAX = 1e-5
"""The device's quotient is good to two units in the last place of logits of up to 100."""
DIFFERING_PART_MAX = 0.05
"""Draws may differ where two scores nearly tie; more of them than this is no rounding."""
EDITED_ROWS = 5


def run(section: Section, place: Place, sizes: Sizes) -> None:
    """Noise, then draws and edits of each vocabulary."""
    section.attempt("noise", lambda: check_noise(section, place, sizes.noises))
    for vocabulary in sizes.vocabularies:
        for check in (check_draws, check_edits):
            name = f"{check.__name__.removeprefix('check_')} of {vocabulary}"
            section.attempt(name, partial(check, section, place, vocabulary, name))


def check_noise(section: Section, place: Place, count: int) -> None:
    """The same bits, and noise from them as good as it must be."""
    generator = torch.Generator().manual_seed(9)
    keys = torch.randint(-(2**62), 2**62, (count,), generator=generator) * 2 + 1
    tokens = torch.randint(0, 2**20, (count,), generator=generator, dtype=torch.int32)
    keys, tokens = keys.to(place.device), tokens.to(place.device)
    bits, noise = torch.empty_like(keys), torch.empty(count, device=place.device)
    noise_kernel[(1,)](keys, tokens, bits, noise, span=count)
    expected = token_sampling.noise_bits(keys, tokens.long())
    off = (noise - token_sampling.gumbel_noise(expected)).abs()
    section.check("noise: unequal bits", float((bits != expected).sum()), 0.0)
    section.check("noise", float(off.max()), NOISE_ERROR_MAX)
    deciding = off[expected < 2**31]
    section.check("noise above its median", float(deciding.max()), NOISE_ERROR_MAX_WHERE_IT_DECIDES)


def check_draws(section: Section, place: Place, vocabulary: int, name: str) -> None:
    """Every mixture of filters and temperatures; a row with nothing left; rows lie apart."""
    logits, how = sampled_rows(vocabulary)
    logits[5] = -torch.inf
    wider = torch.full((logits.shape[0], vocabulary + 3), torch.nan, device=place.device)
    wider[:, :vocabulary] = logits
    how = DrawRows(*(getattr(how, f.name).to(place.device) for f in dataclasses.fields(how)))
    differing, left = unexcused(wider[:, :vocabulary], how)
    section.check(f"{name}: differing", differing / len(logits), DIFFERING_PART_MAX)
    section.check(f"{name}: differing beyond a tie", float(left), 0.0)
    drawn = int(draw_triton(wider[:, :vocabulary], how)[5])
    section.check(f"{name}: nothing allowed", float(drawn != NOTHING_ALLOWED), 0.0)


def check_edits(section: Section, place: Place, vocabulary: int, name: str) -> None:
    """Biases, penalties, bans and masks, in place."""
    plain, edits, masks = edited_rows(EDITED_ROWS, vocabulary)
    plain = plain.to(place.device)
    edits = TokenEdits(
        *(getattr(edits, f.name).to(place.device) for f in dataclasses.fields(edits))
    )
    masks = TokenMasks(masks.rows.to(place.device), masks.words.to(place.device))
    actual, expected = plain.clone(), plain.clone()
    adjust_logits_triton(actual, edits, masks)
    token_sampling.adjust_logits_reference(expected, edits, masks)
    impossible = expected == -torch.inf
    section.check(
        f"{name}: other tokens banned", float((impossible != (actual == -torch.inf)).sum()), 0.0
    )
    off = (actual - expected).abs() / expected.abs().clamp(min=1.0)
    section.check(name, float(off[~impossible].max()), EDIT_ERROR_MAX)
