"""Makes the CPU compute as a GPU would, in Triton's interpreter: for dry runs, in their process.

Called once, before anything is computed.
"""

from collections.abc import Callable

import torch

from inference.models import projection
from kernels.quantized_linear import QuantizedWeight
from kernels.quantized_linear_triton import quantized_linear_triton
from tests.kernels.interpreter import repair_bfloat16


def interpret_as_gpu() -> None:
    """Bfloat16 as on a GPU, and quantized products by the kernels for it."""
    repair_bfloat16()
    # A weight that lies on the CPU is otherwise multiplied by the CPU's own products.
    projection._product = _product  # noqa: SLF001


def _product(weight: QuantizedWeight) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda rows: quantized_linear_triton(rows, weight)
