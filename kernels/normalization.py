"""RMS normalization, alone or of a sum: what the GPU kernels compute, plainly.

The references are the oracles of the tests and nothing else calls them. Zhang and Sennrich, Root
mean square layer normalization, 2019.
"""

import torch


def rms_norm_reference(hidden: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """hidden [rows, size] over its root mean square, times weight [size]; float64 inside."""
    check_norm_shapes(hidden, weight)
    wide = hidden.double()
    inverse = (wide.square().mean(dim=-1, keepdim=True) + epsilon).rsqrt()
    return (wide * inverse * weight.double()).to(hidden.dtype)


def add_rms_norm_reference(
    residual: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(residual + delta in their dtype, the norm of exactly that), both [rows, size]."""
    check_norm_shapes(residual, weight)
    check_same_kind(residual, delta)
    total = residual + delta
    return total, rms_norm_reference(total, weight, epsilon)


def check_norm_shapes(hidden: torch.Tensor, weight: torch.Tensor) -> None:
    """Raises ValueError unless hidden is [rows, size] and weight [size]."""
    if hidden.dim() != 2 or weight.shape != hidden.shape[1:]:
        raise ValueError(
            f"hidden {tuple(hidden.shape)} and weight {tuple(weight.shape)} do not fit"
        )


def check_same_kind(residual: torch.Tensor, delta: torch.Tensor) -> None:
    """Raises ValueError unless both have one shape and dtype."""
    if residual.shape != delta.shape or residual.dtype != delta.dtype:
        raise ValueError(
            f"{residual.dtype} {tuple(residual.shape)} and {delta.dtype} {tuple(delta.shape)} "
            "cannot be added here"
        )
