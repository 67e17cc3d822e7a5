"""Adam without torch's compiler computes what torch's Adam does."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from hagmeta.packs.optimizers import Adam

PROGRAM = """
import sys, torch
from hagmeta.packs.optimizers import Adam
weight = torch.ones(3, requires_grad=True)
optimizer = Adam([weight], fused=True)
weight.sum().backward()
optimizer.step()
optimizer.load_state_dict(optimizer.state_dict())
assert weight.sum() < 3
assert not any(name.startswith("torch._dynamo") for name in sys.modules)
"""


def trained(kind: type[torch.optim.Optimizer]) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    first, second = (torch.randn(4, 3).requires_grad_() for _ in range(2))
    groups = [{"params": [first]}, {"params": [second], "lr": 0.1, "weight_decay": 0.2}]
    optimizer = kind(groups, lr=0.01, fused=True)  # type: ignore[call-arg]
    for _ in range(5):
        optimizer.zero_grad()
        (first.exp() * second.sin()).sum().backward()
        optimizer.step()
    return first.detach(), second.detach()


def test_steps_are_those_of_torch() -> None:
    for ours, theirs in zip(trained(Adam), trained(torch.optim.Adam), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.slow
def test_no_compiler_is_imported() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
