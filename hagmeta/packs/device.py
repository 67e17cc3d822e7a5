"""Choose the device."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch

from hagmeta.common.errors import UserError


@cache
def gpu_usable() -> bool:
    """Return whether there is a GPU and Triton is installed."""
    return torch.cuda.is_available() and find_spec("triton") is not None


def choose_device(name: str) -> torch.device:
    """Return the device ``name``; `auto` means a GPU if there is one."""
    if name == "auto":
        name = "cuda" if gpu_usable() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device is cuda, but torch finds no CUDA device here; use --device cpu or auto.")
    if name == "cuda" and not gpu_usable():
        raise UserError(
            "--device is cuda, but Triton is not installed (it comes with PyTorch's CUDA builds for Linux); "
            "use --device cpu or auto."
        )
    return torch.device(name)
