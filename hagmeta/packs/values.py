"""Numbers of a module that may differ between the members of a pack."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def hold(
    module: nn.Module,
    values: Mapping[str, float],
    dtype: torch.dtype = torch.float64,
    device: torch.device | None = None,
) -> None:
    """Give ``module`` attributes with numbers that may differ within a pack.

    Steps use them like floats. They are scalars in double precision, so a product with single-precision rows
    is rounded as with a float. This does not hold for a product with another scalar: use `like` there.
    """
    for name, value in values.items():
        # Filled on the device, because a copy from the host is not possible while a CUDA graph is captured.
        module.register_buffer(name, torch.full((), value, dtype=dtype, device=device), persistent=False)


def like(value: float | Tensor, other: Tensor) -> float | Tensor:
    """Return ``value`` in the precision of ``other``, so that a product of two scalars keeps it."""
    return value.to(other.dtype) if isinstance(value, Tensor) else value
