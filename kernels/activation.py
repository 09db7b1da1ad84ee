"""The gated activation between a feed-forward's two products: what the GPU kernel computes.

The reference is the oracle of the tests and nothing else calls it. Shazeer, GLU variants improve
transformer, 2020.
"""

import torch


def silu_mul_reference(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up for gate_up [rows, 2 * size] = gate beside up: [rows, size]; float64 inside.

    Raises ValueError for another shape.
    """
    check_gate_up(gate_up)
    gate, up = gate_up.double().chunk(2, dim=-1)
    return (gate * gate.sigmoid() * up).to(gate_up.dtype)


def check_gate_up(gate_up: torch.Tensor) -> None:
    """Raises ValueError unless gate_up is [rows, 2 * size]."""
    if gate_up.dim() != 2 or gate_up.shape[1] % 2:
        raise ValueError(f"{tuple(gate_up.shape)} is no gate beside an up")
