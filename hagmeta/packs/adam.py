"""Adam as torch has it, without the parts that `torch.compile` needs."""

from __future__ import annotations

from inspect import unwrap
from typing import Any

import torch


class Adam(torch.optim.Adam):
    """Computes the same as `torch.optim.Adam`.

    Torch's methods tell its compiler what to leave alone, and import it for that. This takes two seconds in
    every process, and we compile nothing. The methods inside those wrappers need no compiler.
    """

    step: Any = torch.no_grad()(unwrap(torch.optim.Adam.step))
    add_param_group: Any = unwrap(torch.optim.Adam.add_param_group)
    state_dict: Any = unwrap(torch.optim.Adam.state_dict)
    load_state_dict: Any = unwrap(torch.optim.Adam.load_state_dict)
