"""The CPU's products by packed weights: near the reference, and never a neighbour's business."""

import pytest
import torch

from kernels.packed_linear_cpu import Float16Linear, FloatLinear, Int4Linear, Int8Linear
from kernels.quantized_linear import (
    QuantizedWeight,
    quantize_int4,
    quantize_int8,
    quantized_linear_reference,
)

ROWS = 40
OUTLIER_ROW, ZERO_ROW = 3, 7
OUTLIER = 3065.0
"""What the first token of a SmolLM2 prompt reaches."""
ERROR_MAX = {Int8Linear: 3e-3, Int4Linear: 0.005}
SHAPES = ((96, 576), (576, 1536), (48, 96))


def some_rows(inputs: int) -> torch.Tensor:
    rows = torch.randn(ROWS, inputs, generator=torch.Generator().manual_seed(inputs))
    rows[OUTLIER_ROW, 5] = OUTLIER
    rows[ZERO_ROW] = 0.0
    return rows


def some_weight(outputs: int, inputs: int) -> torch.Tensor:
    weight = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(outputs)) / 20
    weight[outputs // 2] = 0.0
    return weight


def packed(
    product: type[Int8Linear] | type[Int4Linear], outputs: int, inputs: int
) -> tuple[QuantizedWeight, Int8Linear | Int4Linear]:
    quantize = quantize_int8 if product is Int8Linear else quantize_int4
    weight = quantize(some_weight(outputs, inputs))
    return weight, product(weight)


@pytest.mark.parametrize("product", [Int8Linear, Int4Linear])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_product_is_near_the_reference(
    product: type[Int8Linear] | type[Int4Linear], shape: tuple[int, int]
) -> None:
    weight, linear = packed(product, *shape)
    rows = some_rows(shape[1])

    outputs = linear(rows)

    expected = quantized_linear_reference(rows, weight)
    others = [row for row in range(ROWS) if row != ZERO_ROW]
    errors = (outputs - expected)[others].norm(dim=1) / expected[others].norm(dim=1)
    assert outputs.shape == (ROWS, shape[0])
    assert outputs.is_contiguous()
    assert float(errors.max()) < ERROR_MAX[product]
    assert not outputs[ZERO_ROW].any()


@pytest.mark.parametrize("product", [Int8Linear, Int4Linear])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_row_is_bit_for_bit_the_same_in_any_company(
    product: type[Int8Linear] | type[Int4Linear], shape: tuple[int, int]
) -> None:
    _, linear = packed(product, *shape)
    rows = some_rows(shape[1])
    together = linear(rows)
    cuts = [(row, row + 1) for row in range(ROWS)]
    cuts += [(0, 2), (2, 5), (3, 9), (1, 17), (2, 33), (5, ROWS)]

    alone = {(first, last): linear(rows[first:last]) for first, last in cuts}

    assert all(
        torch.equal(outputs, together[first:last]) for (first, last), outputs in alone.items()
    )


@pytest.mark.parametrize("packing", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_row_of_floats_is_its_own_too(packing: str, shape: tuple[int, int]) -> None:
    weight, rows = some_weight(*shape), some_rows(shape[1])
    linear: FloatLinear | Float16Linear = (
        Float16Linear(weight)
        if packing == "float16"
        else FloatLinear(weight.bfloat16() if packing == "bfloat16" else weight)
    )
    together = linear(rows)

    alone = [
        linear(rows[first:last]) for first, last in ((0, 1), (1, 3), (3, 8), (8, 30), (30, 40))
    ]

    expected = rows @ weight.T
    errors = (together - expected).norm() / expected.norm()
    assert torch.equal(torch.cat(alone), together)
    assert float(errors) < (1e-5 if packing == "float32" else 0.01)


def test_the_largest_products_do_not_saturate() -> None:
    """The worst sum of two neighbouring products, which AVX2 keeps in sixteen bits."""
    weight = quantize_int8(torch.tensor([[1.0], [-1.0]]).expand(2, 64).contiguous())
    rows = torch.tensor([[1.0], [-1.0]]).expand(2, 64).contiguous()

    outputs = Int8Linear(weight)(rows)

    assert torch.allclose(outputs, torch.tensor([[64.0, -64.0], [-64.0, 64.0]]), rtol=1e-5)


def test_what_is_not_a_number_stays_visible() -> None:
    _, linear = packed(Int8Linear, 96, 576)
    rows = some_rows(576)
    rows[0, 0] = torch.nan

    outputs = linear(rows)

    assert bool(outputs[0].isnan().all())
    assert bool(outputs[1:].isfinite().all())


def test_packing_leaves_torch_s_engine_as_it_was() -> None:
    before = torch.backends.quantized.engine

    packed(Int8Linear, 48, 96)

    assert torch.backends.quantized.engine == before


def test_shapes_that_four_bits_do_not_take_are_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        Int4Linear(quantize_int4(some_weight(40, 96)))
    with pytest.raises(ValueError, match="does not fit"):
        Int4Linear(quantize_int8(some_weight(48, 96)))
