"""Draws on GPU follow their reference, the reference the engine's sampler, and each kernel fits."""

import dataclasses

import pytest
import torch

from inference.engine.computing.sampler import adjust, noise_key, sample
from inference.engine.step import SampleSpec
from kernels import token_sampling
from kernels.logit_edits_triton import (
    EDIT_SPAN,
    MASK_WORDS,
    adjust_logits_triton,
    edit_kernel,
    mask_kernel,
)
from kernels.token_sampling import (
    WORD_TOKENS,
    TokenEdits,
    TokenMasks,
    adjust_logits_reference,
    draw_reference,
)
from kernels.token_sampling_triton import (
    DRAW_SPAN,
    SEARCH_SPAN,
    SEARCH_WARPS,
    draw_block_kernel,
    draw_row_kernel,
    draw_triton,
    floor_kernel,
)
from tests.kernels.compiled import CAPABILITIES, compiled
from tests.kernels.interpreted import interpreted
from tests.kernels.sampling_cases import edited_rows, sampled_rows

FOUND_AT_MOST = {
    "unequal": 0.0,
    "unexcused": 0.0,
    "differing": 1.0,
    "noise_error_where_it_decides": 2e-6,
    "noise_error": 5e-5,
    "largest_noise": 23.0,
    "drawn_of_nothing": -2.0,
}


def test_the_triton_kernels_draw_what_the_reference_draws() -> None:
    findings = interpreted("sampling_interpreted")

    excessive = {
        name: value
        for name, value in findings.items()
        if value > next(most for kind, most in FOUND_AT_MOST.items() if name.startswith(kind))
    }
    assert excessive == {}
    assert len(findings) == 4 + 2 * 5 + 1


def test_the_reference_draws_what_the_engine_draws_on_cpu() -> None:
    logits, how = sampled_rows(500)
    specs = [
        SampleSpec(
            temperature=float(how.temperatures[row]),
            top_k=int(how.top_ks[row]),
            top_p=float(how.top_ps[row]),
            min_p=float(how.min_ps[row]),
            seed=row,
            choice=row % 3,
            position=row * 7,
        )
        for row in range(logits.shape[0])
    ]
    keys = [noise_key(spec.seed, choice=spec.choice, position=spec.position) for spec in specs]
    signed = torch.tensor([key - (key >> 63 << 64) for key in keys])

    drawn = draw_reference(logits, dataclasses.replace(how, noise_keys=signed))

    assert drawn.tolist() == [drawn.token_id for drawn in sample(logits, specs)]


def test_the_reference_adjusts_as_the_engine_does_on_cpu() -> None:
    spec = SampleSpec(
        presence_penalty=0.5,
        frequency_penalty=0.25,
        repetition_penalty=1.5,
        prompt_ids=(1, 2, 2),
        output_ids=(2, 3, 3),
        logit_bias=((3, -1.5), (4, 2.0)),
        banned_ids=(5,),
        allowed=(0b10111111).to_bytes(4, "little"),
    )
    logits = torch.tensor([[1.0, -2.0, 3.0, 0.5, -1.0, 9.0, 9.0, 0.0]])
    expected = logits.clone()
    adjust(expected[0], spec)

    adjust_logits_reference(
        logits,
        TokenEdits(
            rows=torch.zeros(5, dtype=torch.int32),
            token_ids=torch.tensor([1, 2, 3, 4, 5], dtype=torch.int32),
            biases=torch.tensor([0.0, 0.0, -1.5, 2.0, -torch.inf]),
            repetitions=torch.tensor([1.5, 1.5, 1.5, 1.0, 1.0]),
            penalties=torch.tensor([0.0, 0.75, 1.0, 0.0, 0.0]),
        ),
        TokenMasks(
            torch.tensor([0], dtype=torch.int32), torch.tensor([[0b10111111]], dtype=torch.int32)
        ),
    )

    assert torch.equal(logits, expected)


def test_a_row_without_any_token_draws_none() -> None:
    logits, how = sampled_rows(40)
    logits[0], logits[7] = -torch.inf, -torch.inf

    drawn = draw_reference(logits, how)

    assert (drawn == token_sampling.NOTHING_ALLOWED).nonzero().flatten().tolist() == [0, 7]


KERNELS = {
    "edit": (
        edit_kernel,
        {"rows": "*i32:16", "token_ids": "*i32:16"}
        | dict.fromkeys(("biases", "repetitions", "penalties"), "*fp32:16")
        | {"entries": "i32", "row_stride": "i32:16"},
        {"span": EDIT_SPAN},
        4,
    ),
    "mask": (
        mask_kernel,
        {"rows": "*i32:16", "words": "*i32:16", "vocabulary": "i32:16", "row_words": "i32"}
        | {"row_stride": "i32:16"},
        {"span_words": MASK_WORDS, "word_tokens": WORD_TOKENS},
        4,
    ),
    "draw_block": (
        draw_block_kernel,
        dict.fromkeys(("floors", "temperatures", "tops", "bests"), "*fp32:16")
        | {"noise_keys": "*i64:16", "best_ids": "*i32:16"}
        | {"vocabulary": "i32:16", "row_stride": "i32:16"},
        {"span": DRAW_SPAN},
        4,
    ),
    "draw_row": (
        draw_row_kernel,
        dict.fromkeys(("tops", "bests", "temperatures"), "*fp32:16")
        | {"best_ids": "*i32:16", "drawn": "*i64:16", "blocks": "i32"},
        {"span": 1024, "nothing": token_sampling.NOTHING_ALLOWED},
        4,
    ),
    "floor": (
        floor_kernel,
        dict.fromkeys(("temperatures", "top_ps", "min_ps", "floors"), "*fp32:16")
        | {"limited": "*i32:16", "top_ks": "*i32:16", "passes_max": "i32"}
        | {"vocabulary": "i32:16", "row_stride": "i32:16"},
        {"span": SEARCH_SPAN},
        SEARCH_WARPS,
    ),
}


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_stays_in_registers(name: str, capability: int) -> None:
    kernel, types, constants, warps = KERNELS[name]
    if name != "draw_row":
        types = {"logits": "*fp32:16"} | types

    occupied = compiled(
        kernel, types=types, constants=constants, capability=capability, warps=warps
    )

    assert occupied.stack_bytes == 0
    assert occupied.registers <= 64
    assert occupied.shared_bytes <= 2048


def test_what_does_not_fit_is_refused() -> None:
    logits, how = sampled_rows(40)
    plain, edits, masks = edited_rows(4, 40)

    with pytest.raises(ValueError, match="float32"):
        draw_triton(logits.bfloat16(), how)
    with pytest.raises(ValueError, match="dense"):
        draw_triton(logits.T.contiguous().T, how)
    with pytest.raises(ValueError, match="top_ks"):
        draw_triton(logits, dataclasses.replace(how, top_ks=how.top_ks[:-1]))
    with pytest.raises(ValueError, match="noise_keys must be"):
        draw_triton(logits, dataclasses.replace(how, noise_keys=how.top_ks))
    with pytest.raises(ValueError, match="limited"):
        draw_triton(logits, dataclasses.replace(how, limited=how.limited.long()))
    short = dataclasses.replace(edits, penalties=edits.penalties[1:])
    with pytest.raises(ValueError, match="penalties"):
        adjust_logits_triton(plain, short, None)
    with pytest.raises(ValueError, match="2 words"):
        adjust_logits_triton(plain, None, dataclasses.replace(masks, words=masks.words[:, :1]))
    with pytest.raises(ValueError, match="int32"):
        adjust_logits_triton(plain, None, dataclasses.replace(masks, rows=masks.rows.long()))
    with pytest.raises(ValueError, match="vocabulary has"):
        draw_triton(logits[:, :0], how)
