"""The Triton kernels compute what the reference does, and the reference what torch does."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels.kv_layer import KvLayer
from kernels.paged_attention import (
    AttentionBatch,
    check_attention_shapes,
    paged_attention_reference,
)
from kernels.paged_attention_triton import StaticDecode, plan_triton_attention
from tests.kernels.interpreted import interpreted
from tests.kernels.paged_cases import BLOCK_TOKENS, CASES, PagedCase, layer_of, paged_step

CPU = torch.device("cpu")
ERROR_MAX = {"torch.float32": 2e-6, "torch.bfloat16": 8e-3, "torch.float16": 1e-3}
"""Outputs are at most 2 in size: half a unit of the last place, and as much for the weights."""


@pytest.fixture(scope="module")
def interpreted_errors() -> dict[str, float]:
    """The Triton kernels' largest error by what was computed."""
    errors: dict[str, float] = interpreted("attention_interpreted")
    return errors


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_triton_kernel_agrees_with_the_reference(
    case: PagedCase, interpreted_errors: dict[str, float]
) -> None:
    assert interpreted_errors[case.name] < ERROR_MAX["torch.float32"]


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_split_contexts_agree_with_the_reference(
    parts: int, interpreted_errors: dict[str, float]
) -> None:
    assert interpreted_errors[f"split-{parts}"] < ERROR_MAX["torch.float32"]


@pytest.mark.parametrize("stored_type", ["same", "torch.int8", "torch.float8_e4m3fn"])
@pytest.mark.parametrize("dtype", ["torch.float32", "torch.bfloat16", "torch.float16"])
def test_every_format_agrees_with_the_reference_over_the_same_stored_numbers(
    dtype: str, stored_type: str, interpreted_errors: dict[str, float]
) -> None:
    weights_type = dtype
    if dtype == "torch.float16" and stored_type != "same":
        weights_type = "torch.bfloat16"

    error = interpreted_errors[f"{dtype}-{dtype if stored_type == 'same' else stored_type}"]

    assert error < ERROR_MAX[weights_type]


@pytest.mark.parametrize("sequences", [4, 2])
@pytest.mark.parametrize("card", ["whole", "split"])
def test_buffers_that_never_move_serve_one_step_after_another(
    card: str, sequences: int, interpreted_errors: dict[str, float]
) -> None:
    assert interpreted_errors[f"static-{card}-{sequences}"] < ERROR_MAX["torch.float32"]


def test_the_reference_is_causal_attention() -> None:
    query, layer, _ = paged_step(PagedCase("plain", ((32, 32),), heads=4, kv_heads=4))
    batch = AttentionBatch(
        query_starts=torch.tensor([0, 32], dtype=torch.int32),
        context_lengths=torch.tensor([32], dtype=torch.int32),
        block_tables=torch.tensor([[1, 0]], dtype=torch.int32),
    )

    attended = paged_attention_reference(query, layer, batch)

    keys, values = (pool[:, [1, 0]].flatten(1, 2) for pool in (layer.keys, layer.values))
    expected = scaled_dot_product_attention(query.transpose(0, 1), keys, values, is_causal=True)
    assert torch.allclose(attended, expected.transpose(0, 1), atol=ERROR_MAX["torch.float32"])


@pytest.mark.parametrize(
    ("stored_type", "error_max"), [(torch.int8, 0.01), (torch.float8_e4m3fn, 0.05)]
)
def test_quantized_keys_and_values_answer_almost_as_exact_ones(
    stored_type: torch.dtype, error_max: float
) -> None:
    query, exact, batch = paged_step(PagedCase("quantized", ((1, 100), (20, 40))))
    layer = layer_of(exact.keys, exact.values, stored_type)

    attended = paged_attention_reference(query, layer, batch)

    expected = paged_attention_reference(query, exact, batch)
    assert 0 < float((attended - expected).norm() / expected.norm()) < error_max


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": (4, 9)}, "query must be"),
        ({"query": (4, 9, 32)}, "does not fit the pool"),
        ({"query": (4, 10, 64)}, "does not fit the pool"),
        ({"values": (3, 5, 16, 32)}, "differ"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    change: dict[str, tuple[int, ...]], message: str
) -> None:
    shapes = {"query": (4, 9, 64), "keys": (3, 5, 16, 64), "values": (3, 5, 16, 64)}
    query, keys, values = (torch.zeros(shape) for shape in (shapes | change).values())
    batch = AttentionBatch(
        torch.tensor([0, 4], dtype=torch.int32),
        torch.tensor([4], dtype=torch.int32),
        torch.tensor([[0]], dtype=torch.int32),
    )

    with pytest.raises(ValueError, match=message):
        check_attention_shapes(query, KvLayer(keys, values), batch)


def test_tables_of_another_type_or_length_are_refused() -> None:
    query, layer, batch = paged_step(PagedCase("types", ((1, 20), (5, 10))))
    wide = AttentionBatch(batch.query_starts, batch.context_lengths.long(), batch.block_tables)
    short = AttentionBatch(batch.query_starts[:-1], batch.context_lengths, batch.block_tables)

    with pytest.raises(ValueError, match="int32"):
        check_attention_shapes(query, layer, wide)
    with pytest.raises(ValueError, match="query starts"):
        check_attention_shapes(query, layer, short)


def test_scales_belong_to_quantized_pools_only() -> None:
    query, layer, batch = paged_step(PagedCase("scales", ((1, 20),)), stored_type=torch.int8)
    exact, _ = (pool.float() for pool in (layer.keys, layer.values))

    with pytest.raises(ValueError, match="exactly if it is quantized"):
        check_attention_shapes(query, KvLayer(layer.keys, layer.values), batch)
    with pytest.raises(ValueError, match="exactly if it is quantized"):
        check_attention_shapes(
            query, KvLayer(exact, exact, layer.key_scales, layer.value_scales), batch
        )


def test_layouts_the_triton_kernel_cannot_read_are_refused() -> None:
    odd_query, odd_layer, odd_batch = paged_step(PagedCase("odd_size", ((1, 20),), head_size=48))
    query, layer, batch = paged_step(PagedCase("usual", ((1, 20),)))
    scattered = layer.keys.transpose(1, 2).contiguous().transpose(1, 2)

    with pytest.raises(ValueError, match="head size 48"):
        plan_triton_attention(odd_batch, CPU)(odd_query, odd_layer)
    with pytest.raises(ValueError, match="laid out alike"):
        plan_triton_attention(batch, CPU)(query, KvLayer(scattered, layer.values))
    with pytest.raises(ValueError, match="must be contiguous"):
        plan_triton_attention(batch, CPU)(query, KvLayer(scattered, scattered))
    with pytest.raises(ValueError, match="float64"):
        plan_triton_attention(batch, CPU)(query.double(), layer)


def test_static_buffers_refuse_what_they_were_not_reserved_for() -> None:
    static = StaticDecode(
        sequences=2, blocks_max=3, block_tokens=BLOCK_TOKENS, kv_heads=3, device=CPU
    )
    _, _, three = paged_step(PagedCase("three", ((1, 3), (1, 4), (1, 5))))
    _, _, long = paged_step(PagedCase("long", ((1, 49),)))
    _, _, prefill = paged_step(PagedCase("prefill", ((2, 20),)))
    query, layer, _ = paged_step(PagedCase("one", ((1, 3),)))

    for batch in (three, long):
        with pytest.raises(ValueError, match="exceed the reserved buffers"):
            static.update(batch)
    with pytest.raises(ValueError, match="one query per sequence"):
        static.update(prefill)
    with pytest.raises(ValueError, match="not what the buffers were reserved for"):
        static(query, layer)
