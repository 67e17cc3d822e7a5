"""Functions with gradients of their own, as cheap to call as torch allows."""

from __future__ import annotations

import inspect
from typing import Any

import torch


class Function(torch.autograd.Function):
    """Base class of our ``torch.autograd.Function`` classes; keeps the signature of ``forward``.

    Torch asks for it at every call. Without this class, that takes a tenth of a run on a small graph.
    """

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.forward.__signature__ = inspect.signature(cls.forward)  # type: ignore[attr-defined]
