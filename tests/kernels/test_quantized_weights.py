"""Quantized weights stand for nearly the weights they were made of, and say when they cannot."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from kernels.quantized_linear import (
    GROUP,
    INT4_MAX,
    INT8_MAX,
    QuantizedWeight,
    dequantize,
    quantize_int4,
    quantize_int8,
    quantized_linear_reference,
)


def weights(outputs: int, inputs: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed))


@given(
    outputs=st.integers(1, 5),
    inputs=st.integers(1, 70),
    seed=st.integers(0, 99),
    size=st.sampled_from([1e-3, 1.0, 300.0]),
)
def test_eight_bits_are_off_by_half_a_level_at_most(
    outputs: int, inputs: int, seed: int, size: float
) -> None:
    weight = weights(outputs, inputs, seed) * size

    quantized = quantize_int8(weight)

    level = weight.abs().amax(dim=1, keepdim=True) / INT8_MAX
    assert ((dequantize(quantized) - weight).abs() <= level * 0.5001).all()
    assert (quantized.outputs, quantized.inputs) == (outputs, inputs)


@given(
    outputs=st.integers(1, 5),
    groups=st.integers(1, 4),
    seed=st.integers(0, 99),
    size=st.sampled_from([1e-2, 1.0, 300.0]),
    shift=st.sampled_from([0.0, 2.0]),
)
def test_four_bits_are_off_by_half_a_level_at_most(
    outputs: int, groups: int, seed: int, size: float, shift: float
) -> None:
    weight = (weights(outputs, groups * GROUP, seed) + shift) * size

    quantized = quantize_int4(weight)

    low, high = weight.view(outputs, groups, GROUP).aminmax(dim=-1, keepdim=True)
    rounding_of_float16 = 2**-11 * (low.abs() + (high - low))
    errors = (dequantize(quantized) - weight).view(outputs, groups, GROUP).abs()
    assert (errors <= (high - low) / INT4_MAX * 0.5001 + rounding_of_float16).all()
    assert (quantized.outputs, quantized.inputs) == (outputs, groups * GROUP)


def test_four_bits_lie_in_the_order_of_q4_1() -> None:
    levels = torch.arange(GROUP, dtype=torch.float32).remainder(16).flip(0)[None]

    quantized = quantize_int4(levels * 0.25 - 1.0)

    # Input 0 is the low nibble of byte 0 and input 16 its high one: both are the highest level.
    assert quantized.values[0].tolist() == [level * 17 for level in range(15, -1, -1)]
    assert quantized.scales.tolist() == [[0.25]]
    assert quantized.minimums is not None and quantized.minimums.tolist() == [[-1.0]]


def test_weights_quantized_before_pass_through_unchanged() -> None:
    once = dequantize(quantize_int4(weights(8, 128)))

    assert torch.equal(dequantize(quantize_int4(once)), once)


def test_equal_weights_keep_their_value() -> None:
    weight = torch.tensor([[0.0] * GROUP, [-3.0] * GROUP])

    assert torch.equal(dequantize(quantize_int4(weight)), weight)
    assert torch.allclose(dequantize(quantize_int8(weight)), weight)


def test_the_product_is_that_of_the_weights_stood_for() -> None:
    rows, bias = weights(3, 64, seed=1), weights(1, 5, seed=2)[0]
    quantized = quantize_int4(weights(5, 64))

    product = quantized_linear_reference(rows, quantized, bias)

    assert torch.allclose(product, rows @ dequantize(quantized).T + bias, atol=1e-5)


def test_inputs_that_fill_no_group_are_refused() -> None:
    with pytest.raises(ValueError, match="keep this weight in int8"):
        quantize_int4(weights(4, 48))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e6])
def test_numbers_beyond_the_format_are_refused(value: float) -> None:
    weight = weights(2, GROUP)
    weight[1, 3] = value

    with pytest.raises(ValueError, match="not finite"):
        quantize_int4(weight)
    if value != 1e6:
        with pytest.raises(ValueError, match="not finite"):
            quantize_int8(weight)


def test_parts_that_do_not_belong_together_are_refused() -> None:
    eight, four = quantize_int8(weights(4, 64)), quantize_int4(weights(4, 64))

    with pytest.raises(ValueError, match="no quantized weight"):
        QuantizedWeight(eight.values, four.scales)
    with pytest.raises(ValueError, match="minimums"):
        QuantizedWeight(four.values, four.scales, eight.scales)
    with pytest.raises(ValueError, match="dense"):
        QuantizedWeight(eight.values[:, ::2], eight.scales)
    with pytest.raises(ValueError, match="do not fit 64 inputs"):
        quantized_linear_reference(weights(3, 65), eight)
    with pytest.raises(ValueError, match="does not fit 4 outputs"):
        quantized_linear_reference(weights(3, 64), eight, weights(1, 5)[0])
