"""Makes the CPU compute as a GPU would, in Triton's interpreter: for dry runs, in their process.

Called once, before anything is computed.
"""

from inference.models import projection
from tests.kernels.interpreter import repair_bfloat16


def interpret_as_gpu() -> None:
    """Bfloat16 as on a GPU, and quantized products by the kernels for it."""
    repair_bfloat16()
    # A weight that lies on the CPU is otherwise multiplied by the CPU's own products.
    projection._on_cpu = projection._on_gpu  # noqa: SLF001
