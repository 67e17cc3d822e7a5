"""When a node became visible tells which classes it may be of, and no method can use it.

Before each session, the times of arrival up to it are dealt anew among the nodes that are visible in it. The
method is made anew as well, and gets nothing but its parameters. All predictions and parameters stay equal to
the bit. So a method knows of arrival only which nodes are visible now. With ``rehearsal: none`` it also has
what the engine keeps of earlier classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.methods import METHODS, make_method
from hagmeta.methods.paper.proto import ProtoGcn
from hagmeta.scenarios import PROTOCOLS
from hagmeta.sparse.graph import View
from hagmeta.testing import same_answers, same_parameters
from tests.hagmeta.kinds import kinds_with
from tests.hagmeta.scenarios.leaks.replayed import Life

Tiny = Callable[..., RunConfig]
WAYS: dict[str, dict[str, Any]] = {protocol: {"protocol": protocol} for protocol in PROTOCOLS} | {
    "without old labels": {"rehearsal": "none"},
    "exemplars": {"rehearsal": "1"},
    "whole graph": {"visibility": "whole"},
    "re-weighted": {"smoothing": 0.5, "logit_adjustment": 1.0, "prior": "estimated"},
    "self-trained": {"self_training": 3},
}


def uses_arrival(config: RunConfig, dataset: Dataset) -> bool:
    """Return whether times of arrival, or what a method remembers of them, change a run."""
    rng = np.random.default_rng(0)
    life, other = (Life(config, dataset) for _ in range(2))
    streams = [scenario.test for scenario in other.context.scenarios]

    def deal(session: int) -> None:
        for stream in streams:
            there = np.flatnonzero(stream.arrival <= session + 1)
            stream.arrival[there] = rng.permutation(stream.arrival[there])
        sizes, seed = other.context.known.views.sizes, other.context.seeds[0]
        other.pack.template = make_method(other.context.settings, sizes, seed)

    same = same_answers(life.sessions(life.context), other.sessions(other.context, deal))
    honest = (scenario.test.arrival for scenario in life.context.scenarios)
    assert all((one.arrival != times).any() for one, times in zip(streams, honest, strict=True))
    return not (same and same_parameters(life.pack, other.pack))


@pytest.mark.parametrize(
    ("method", "way"), [*kinds_with(WAYS, fully=()), pytest.param("icarl", "growing", id="grows")]
)
def test_arrival_changes_nothing(tiny_graph: Dataset, tiny: Tiny, method: str, way: str) -> None:
    assert not uses_arrival(tiny(method=method, **WAYS[way]), tiny_graph)


class Cheat(ProtoGcn):
    """Tells new nodes by what was not visible in the session before: they are of the last classes."""

    previous: Any = None

    def logits(self, shared: Any, view: View, tasks: Any) -> tuple[Tensor, ...]:
        before, seen = self.previous, torch._C._functorch.get_unwrapped(view.visible)
        answers = super().logits(shared, view, tasks)
        if before is not None and bool((seen > before).any()):
            is_new = ((seen - before).amax(0) > 0)[tasks[0].query]
            is_last = torch.arange(answers[0].shape[-1]) >= answers[0].shape[-1] - shared.task_sizes[-1]
            answers = (answers[0] + 1e6 * (is_new.unsqueeze(-1) & is_last),)
        self.previous = seen
        return answers


def test_memory_of_arrival_is_caught(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "cheat", Cheat)
    assert uses_arrival(tiny(method="cheat"), tiny_graph)
