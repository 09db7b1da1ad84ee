"""Logits adjusted and tokens drawn by the Triton kernels in the interpreter; prints findings."""

import dataclasses
import json
import sys

import torch
import triton
import triton.language as tl

from kernels import token_sampling, token_sampling_triton
from kernels.logit_edits_triton import adjust_logits_triton
from kernels.token_sampling import (
    DrawRows,
    adjust_logits_reference,
    draw_reference,
)
from kernels.token_sampling_triton import draw_triton
from tests.kernels.sampling_cases import edited_rows, sampled_rows

TOLERANCE = 1e-4
VOCABULARIES = (40, 9000)


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def noise_kernel(keys, tokens, bits, noise, span: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.arange(0, span)
    hashed = token_sampling_triton.noise_bits(tl.load(keys + place), tl.load(tokens + place))
    tl.store(bits + place, hashed.to(tl.int64))
    tl.store(noise + place, token_sampling_triton.gumbel_noise(hashed))


def noise_findings() -> dict[str, float]:
    span = 8192
    generator = torch.Generator().manual_seed(9)
    keys = torch.randint(-(2**62), 2**62, (span,), generator=generator) * 2 + 1
    tokens = torch.randint(0, 2**20, (span,), generator=generator, dtype=torch.int32)
    bits, noise = torch.empty_like(keys), torch.empty(span)
    noise_kernel[(1,)](keys, tokens, bits, noise, span=span)
    expected = token_sampling.noise_bits(keys, tokens.long())
    off = (noise - token_sampling.gumbel_noise(expected)).abs()
    extremes = torch.tensor([0, 1, 2**28 - 1, 2**28, 2**32 - 1])
    return {
        "unequal_bits": float((bits != expected).sum()),
        "noise_error_where_it_decides": float(off[expected < 2**31].max()),
        "noise_error": float(off.max()),
        "largest_noise": float(token_sampling.gumbel_noise(extremes).max()),
    }


def unexcused(logits: torch.Tensor, how: DrawRows) -> tuple[int, int]:
    """(draws that differ from the reference, those that its tolerance does not excuse)."""
    actual, expected = draw_triton(logits, how), draw_reference(logits, how)
    differing = (actual != expected).nonzero().flatten().tolist()
    nearly = [
        draw_reference(logits, dataclasses.replace(how, top_ps=how.top_ps + shift))
        for shift in (TOLERANCE, -TOLERANCE)
    ]
    left = 0
    for row in differing:
        if actual[row] in (nearly[0][row], nearly[1][row]):
            continue
        ids = torch.stack((actual[row], expected[row]))
        bits = token_sampling.noise_bits(how.noise_keys[row], ids)
        scores = logits[row, ids].double() / how.temperatures[row]
        perturbed = scores + token_sampling.gumbel_noise(bits)
        left += abs(float(perturbed[0] - perturbed[1])) > TOLERANCE
    return len(differing), left


def main() -> None:
    torch.set_num_threads(1)
    findings = noise_findings()
    for vocabulary in VOCABULARIES:
        logits, how = sampled_rows(vocabulary)
        wider = torch.full((logits.shape[0], vocabulary + 3), torch.nan)
        wider[:, :vocabulary] = logits
        differing, left = unexcused(wider[:, :vocabulary], how)
        findings[f"differing_draws_of_{vocabulary}"] = differing
        findings[f"unexcused_draws_of_{vocabulary}"] = left
        plain, edits, masks = edited_rows(5, vocabulary)
        for name, given in {
            "edits": (edits, None),
            "masks": (None, masks),
            "both": (edits, masks),
        }.items():
            actual, expected = plain.clone(), plain.clone()
            adjust_logits_triton(actual, *given)
            adjust_logits_reference(expected, *given)
            findings[f"unequal_{name}_of_{vocabulary}"] = float((actual != expected).sum())
    logits, how = sampled_rows(40)
    logits[3], logits[9], logits[11, 5] = -torch.inf, -torch.inf, torch.inf
    drawn = draw_triton(logits, how)
    findings["drawn_of_nothing"] = float(drawn[3] + drawn[9])
    json.dump(findings, sys.stdout)


if __name__ == "__main__":
    main()
