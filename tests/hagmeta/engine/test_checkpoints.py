"""Runs that are cut off go on from what was kept, and end as if they had not been, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine import checkpoints as module
from hagmeta.engine.checkpoints import Checkpoints, State
from hagmeta.engine.options import RunOptions
from hagmeta.engine.run import run
from tests.hagmeta.kinds import one_of_each_kind

CPU = torch.device("cpu")
SEEDS = [0, 5]
EPISODES = 2
Tiny = Callable[..., RunConfig]
KEPT = ("hag-meta",)  # below, icarl keeps a memory and prototypes between sessions
CASES: list[Any] = [
    *(pytest.param({"method": each.values[0]}, marks=each.marks) for each in one_of_each_kind(kinds=KEPT)),
    *(
        pytest.param({"method": method, "protocol": "released"}, marks=pytest.mark.slow)
        for method in ("hag-meta", "gpn", "frozen", "icarl")
    ),
    {"method": "icarl", "rehearsal": "none"},
    *(
        pytest.param(case, marks=pytest.mark.slow)
        for case in (
            {"rehearsal": "none", "logit_adjustment": 1.0},
            {"n_way": 1, "classes": (2, 3, 4), "val_classes": 2, "smoothing": 0.5},
            {"method": "frozen", "self_training": 2, "prior": "estimated"},
        )
    ),
]


class CutOff(Exception):
    """As a kill."""


class KeptAlways(Checkpoints):
    """Keeps every state, and is then cut off: so many times a run is begun."""

    def keep(self, phase: str, where: str, make: Callable[[], State]) -> None:
        super().keep(phase, where, make)
        raise CutOff(where)


def told(config: RunConfig, graph: Dataset, checkpoints: Checkpoints | None = None) -> Any:
    """All that a run leaves, but for what tells of time and place."""
    options = RunOptions(device=CPU, checkpoints=checkpoints, embeddings_after=1)
    found = []
    for record, predictions, embeddings in run(config, SEEDS, graph, options):
        assert embeddings is not None
        del record["seconds"], record["environment"]
        arrays = predictions.arrays() | {f"embeddings/{name}": array for name, array in embeddings.items()}
        found.append((record, {name: array.tolist() for name, array in arrays.items()}))
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_a_run_cut_off_at_every_moment_ends_as_if_it_never_was(
    tiny_graph: Dataset, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]
) -> None:
    monkeypatch.setattr(module, "COST_SHARE", np.inf)
    config = resolve(tiny(episodes=EPISODES, pretrain_epochs=15, **case))
    moments = []
    while True:
        checkpoints = KeptAlways(tmp_path, "pack", {}, least_seconds=0)
        try:
            ended = told(config, tiny_graph, checkpoints)
            break
        except CutOff as moment:
            moments.append(str(moment))
    assert moments[-1] == f"session {config.sessions - 1}" and len(set(moments)) == len(moments)
    assert config.method != "hag-meta" or moments[0] == "epoch 10 of pre-training"
    assert ended == told(config, tiny_graph)


def test_what_is_damaged_or_of_other_settings_is_not_gone_on_from(tmp_path: Path) -> None:
    def made(**made_from: Any) -> Checkpoints:
        return Checkpoints(tmp_path, "pack", made_from, least_seconds=0)

    made(hidden=8).keep("meta-train", "episode 3", lambda: {"episodes": 3, "best": np.ones(2)})
    kept = made(hidden=8)
    state = kept.reached("meta-train")
    assert (
        state is not None
        and state["episodes"] == 3
        and kept.note == "continued from a checkpoint at episode 3"
    )
    assert kept.reached("sessions") is None
    other = made(hidden=16)
    assert other.reached("meta-train") is None
    says = f"started again: {kept.path.name} is damaged, or was written by other code or settings"
    assert other.note == says
    kept.path.write_bytes(kept.path.read_bytes()[:100])
    damaged = made(hidden=8)
    assert damaged.reached("meta-train") is None and damaged.note == says
    kept.clear()
    assert not list(tmp_path.iterdir()) and not made(hidden=8).note


def test_a_disk_that_takes_no_more_costs_the_checkpoint_and_not_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    checkpoints = Checkpoints(tmp_path / "file" / "folder", "pack", {}, least_seconds=0)
    checkpoints.keep("meta-train", "episode 3", lambda: {"episodes": 3})
    checkpoints.clear()
    assert checkpoints.reached("meta-train") is None


def test_they_take_a_hundredth_of_the_time_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    kept = []

    def slow() -> State:
        nonlocal now
        kept.append(now)
        now += 2.0
        return {}

    checkpoints = Checkpoints(tmp_path, "pack", {})
    while now < 1000:
        checkpoints.keep("meta-train", "", slow)
        now += 1.0
    assert kept[0] == module.LEAST_SECONDS
    assert 2.0 * len(kept) <= 0.01 * now + 2.0
