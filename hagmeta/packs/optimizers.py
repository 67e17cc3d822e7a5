"""Optimizers as torch has them, without the parts that `torch.compile` needs."""

from __future__ import annotations

from inspect import unwrap
from typing import Any

import torch


class Uncompiled(torch.optim.Optimizer):
    """An optimizer that does not import torch's compiler.

    Torch's methods tell the compiler what to leave alone, and import it for that. This takes a second in
    every process, and we compile nothing. The methods inside those wrappers need no compiler.
    """

    add_param_group: Any = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad: Any = unwrap(torch.optim.Optimizer.zero_grad)
    state_dict: Any = unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict: Any = unwrap(torch.optim.Optimizer.load_state_dict)


class Adam(Uncompiled, torch.optim.Adam):
    """Takes the same steps as `torch.optim.Adam`."""

    step: Any = torch.no_grad()(unwrap(torch.optim.Adam.step))
