"""Projections multiply, whatever the number of rows and the format of the weight."""

import pytest
import torch

from inference.models.projection import WeightFormat, make_projection
from kernels.packed_linear_cpu import bfloat16_supported

ERRORS_MAX = {
    WeightFormat.FLOAT32: 1e-6,
    WeightFormat.FLOAT16: 1e-3,
    WeightFormat.INT8: 0.01,
    WeightFormat.INT4: 0.12,
}
OUTPUTS, INPUTS = 80, 96


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[0]))


if bfloat16_supported():
    ERRORS_MAX[WeightFormat.BFLOAT16] = 0.01


@pytest.mark.parametrize("weight_format", ERRORS_MAX)
@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 33])
def test_a_projection_is_a_product_and_a_bias(weight_format: WeightFormat, count: int) -> None:
    rows, weight, bias = random(count, INPUTS), random(OUTPUTS, INPUTS), random(OUTPUTS)
    before = rows.clone()

    outputs = make_projection(weight, bias, weight_format)(rows)

    expected = rows @ weight.T + bias
    assert outputs.is_contiguous()
    assert outputs.dtype == rows.dtype
    assert float((outputs - expected).norm() / expected.norm()) < ERRORS_MAX[weight_format]
    assert torch.equal(rows, before)


@pytest.mark.parametrize("weight_format", ERRORS_MAX)
def test_a_projection_of_nothing_is_nothing(weight_format: WeightFormat) -> None:
    project = make_projection(random(OUTPUTS, INPUTS), None, weight_format)

    assert project(torch.zeros(0, INPUTS)).shape == (0, OUTPUTS)


def test_cheaper_formats_take_less_memory() -> None:
    weight = random(OUTPUTS, INPUTS)
    formats = ("float32", "float16", "int8", "int4")
    sizes = [make_projection(weight, None, WeightFormat(each)).weight_bytes for each in formats]

    assert sizes[0] == weight.nbytes
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[1] == sizes[0] / 2
    assert sizes[2] < 0.3 * sizes[0]
    assert sizes[3] < 0.2 * sizes[0]


def test_shapes_that_four_bits_do_not_take_stay_in_eight() -> None:
    weight = random(OUTPUTS + 3, INPUTS)
    four, eight = (
        make_projection(weight, None, each) for each in (WeightFormat.INT4, WeightFormat.INT8)
    )
    rows = random(4, INPUTS)

    assert torch.equal(four(rows), eight(rows))
