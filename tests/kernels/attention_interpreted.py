"""Runs attention steps through the Triton kernels in the interpreter; prints errors as JSON.

A program of its own because Triton decides on the interpreter once, when it is imported. Errors are
the largest distances from the reference in float64 over the same stored keys and values.
"""

import json
import sys
from collections.abc import Iterator

import torch

from kernels.kv_layer import KvLayer
from kernels.paged_attention import Attend, AttentionBatch, paged_attention_reference
from kernels.paged_attention_plan import Card
from kernels.paged_attention_triton import StaticDecode, plan_triton_attention
from tests.kernels.interpreter import repair_bfloat16
from tests.kernels.paged_cases import BLOCK_TOKENS, CASES, DECODES, PagedCase, paged_step

CPU = torch.device("cpu")
WHOLE = Card(processors=1, native_float8=False)
"""Too small a card for splits."""


def splitting(parts: int) -> Card:
    """A card so large that contexts of 128 tokens are read in `parts` parts."""
    return Card(processors=512, native_float8=False, split_tokens_min=128 // parts)


def errors() -> Iterator[tuple[str, float]]:
    """(name, error) of everything that the tests ask for."""
    for case in CASES:
        query, layer, batch = paged_step(case)
        yield case.name, error(plan_triton_attention(batch, CPU, WHOLE), query, layer, batch)
    for parts in (2, 3, 8):
        case = PagedCase("split", ((1, 128), (1, 3), (13, 64), (1, 17)), heads=3, kv_heads=1)
        query, layer, batch = paged_step(case)
        attend = plan_triton_attention(batch, CPU, splitting(parts))
        yield f"split-{parts}", error(attend, query, layer, batch)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for stored_type in (dtype, torch.int8, torch.float8_e4m3fn):
            case = PagedCase("formats", ((1, 70), (18, 40)), heads=6, kv_heads=2)
            query, layer, batch = paged_step(case, dtype, stored_type)
            attend = plan_triton_attention(batch, CPU, splitting(2))
            yield f"{dtype}-{stored_type}", error(attend, query, layer, batch)
    yield from static_errors()


def static_errors() -> Iterator[tuple[str, float]]:
    """One set of buffers for one step after another, shorter ones after longer ones."""
    for name, card in (("whole", WHOLE), ("split", splitting(4))):
        static = StaticDecode(
            sequences=6,
            blocks_max=8,
            block_tokens=BLOCK_TOKENS,
            kv_heads=3,
            device=CPU,
            card=card,
        )
        for lengths in (DECODES, ((1, 1), (1, 50))):
            query, layer, batch = paged_step(PagedCase("static", lengths))
            static.update(batch)
            padding = torch.full((6 - len(lengths), *query.shape[1:]), torch.nan)
            attended = static(torch.cat((query, padding)), layer)
            expected = paged_attention_reference(query.double(), layer, batch)
            difference = (attended[: len(lengths)] - expected).abs().max()
            rest = attended[len(lengths) :].abs().max()
            yield f"static-{name}-{len(lengths)}", float(torch.maximum(difference, rest))


def error(attend: Attend, query: torch.Tensor, layer: KvLayer, batch: AttentionBatch) -> float:
    """The largest error of one step, whose queries are a slice of a wider tensor as in a model."""
    wider = torch.cat((query, torch.full_like(query[:, :2], torch.nan)), dim=1)
    expected = paged_attention_reference(query.double(), layer, batch)
    actual = attend(wider[:, : query.shape[1]], layer)
    assert actual.dtype == query.dtype
    return float((actual - expected).abs().max())


if __name__ == "__main__":
    repair_bfloat16()
    json.dump(dict(errors()), sys.stdout)
