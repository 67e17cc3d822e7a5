"""Runs whose loss or scores are not finite fail, and the others keep their records."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hagmeta.__main__ import main
from hagmeta.common.errors import Diverged
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine import checkpoints as checkpoints_module
from hagmeta.engine import run as pipeline
from hagmeta.engine.context import Context
from hagmeta.engine.options import RunOptions
from hagmeta.engine.run import RunOutput, prepare, pretrain, run
from hagmeta.engine.training.divergence import check_losses
from hagmeta.packs.capture import Capture, Steps, stream_of
from hagmeta.packs.pack import EarlyStopping, Pack
from hagmeta.testing import TIME_AND_PLACE, records_of
from tests.hagmeta.conftest import TINY
from tests.hagmeta.engine.test_checkpoints import CutOff, KeptAlways

CPU = torch.device("cpu")
Tiny = Callable[..., RunConfig]
# At this inner rate, seed 0 diverges in the third step of meta-training, and seeds 1 and 2 do not.
RATE = 60.0
REASON = "meta-gnn diverged with seed 0: its loss is not finite in meta-training, step 3"


def timeless(outputs: list[RunOutput]) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in output.record.items() if key not in TIME_AND_PLACE}
        for output in outputs
    ]


@pytest.fixture
def diverging(tiny: Tiny) -> Tiny:
    def make(**changes: Any) -> RunConfig:
        own = {"method": "meta-gnn", "inner_rate": RATE, "inner_steps": 5, "episodes": 4}
        return resolve(tiny(**own | changes))

    return make


def test_diverged_seed_fails_and_others_keep_their_records(diverging: Tiny, tiny_graph: Dataset) -> None:
    options = RunOptions(device=CPU, embeddings_after=0)
    with pytest.raises(Diverged, match="learning rates") as error:
        run(diverging(), (0, 1), tiny_graph, options)
    assert error.value.failures == {0: REASON}
    finished, alone = error.value.finished, run(diverging(), (1,), tiny_graph, options)
    assert timeless(finished) == timeless(alone)
    for one, other in zip(finished, alone, strict=True):
        np.testing.assert_equal(one.predictions.arrays(), other.predictions.arrays())
        np.testing.assert_equal(one.embeddings, other.embeddings)


@pytest.mark.parametrize("failures", [{}, {2: REASON}, {-1: REASON}])
def test_error_that_names_no_member_of_the_pack_ends_the_run(
    tiny: Tiny, tiny_graph: Dataset, monkeypatch: pytest.MonkeyPatch, failures: dict[int, str]
) -> None:
    def diverge(context: Context) -> Pack:
        raise Diverged(failures)

    monkeypatch.setattr(pipeline, "pretrain", diverge)
    with pytest.raises(Diverged) as error:
        records_of(tiny(), (0, 1), tiny_graph)
    assert error.value.failures == failures and error.value.finished is None


def test_pack_without_a_finite_member_has_no_records(diverging: Tiny, tiny_graph: Dataset) -> None:
    with pytest.raises(Diverged) as error:
        records_of(diverging(), (0,), tiny_graph)
    assert error.value.failures == {0: REASON} and error.value.finished is None


@pytest.mark.slow
def test_diverged_run_is_found_after_every_interruption(
    diverging: Tiny, tiny_graph: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints_module, "COST_SHARE", np.inf)
    # No validation between the steps: the step that diverged is one of a run before.
    config, moments = diverging(validate_every=4), []
    while True:
        checkpoints = KeptAlways(tmp_path, "pack", {}, least_seconds=0)
        try:
            run(config, (0, 1), tiny_graph, RunOptions(device=CPU, checkpoints=checkpoints))
        except CutOff as moment:
            moments.append(str(moment))
        except Diverged as error:
            assert error.failures == {0: REASON}
            alone = run(config, (1,), tiny_graph, RunOptions(device=CPU))
            assert timeless(error.finished) == timeless(alone)
            break
    assert moments.count("episode 3") == 2  # of the pack, and of the seed that is left
    checkpoints.clear()
    assert not list(tmp_path.iterdir())


# Large features overflow: the larger they are, the earlier.
@pytest.mark.parametrize(
    ("scale", "changes", "reason"),
    [
        (3e38, {"method": "frozen"}, "its loss is not finite in pre-training, step 1"),
        (1e30, {"pretrain_epochs": 0}, "its loss is not finite in meta-training, step 1"),
        (1e19, {"method": "proto-gcn"}, "its loss is not finite in session 1 of the test stream, step 3"),
        (
            1e19,
            {"protocol": "released", "pretrain_epochs": 0},
            "its loss is not finite in session 2 of the test stream, step 1",
        ),
        (1e30, {"method": "frozen"}, "its scores are not finite in session 0 of the test stream"),
    ],
)
def test_error_names_the_phase_and_the_step(
    tiny: Tiny, tiny_graph: Dataset, scale: float, changes: dict[str, Any], reason: str
) -> None:
    graph = replace(tiny_graph, features=tiny_graph.features * np.float32(scale))
    with pytest.raises(Diverged, match=f"with seed [01]: {reason}"), np.errstate(over="ignore"):
        records_of(tiny(finetune_steps=8, **changes), (0, 1), graph)


class Root(nn.Module):
    """The root of a parameter: its slope is not finite once a step has made it negative."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.full((1, 1), start))

    def forward(self, step: str, nothing: Tensor) -> tuple[Tensor, Tensor]:
        return self.value.sqrt().sum() + 0 * nothing, self.value


def steps_of(pack: Pack) -> Steps:
    return Steps(pack, 1.0, 0.0, Capture(pack.device))


GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


# On a GPU, all steps but the first are replayed.
@pytest.mark.parametrize("name", ["cpu", pytest.param("cuda", marks=GPU)])
def test_first_step_whose_loss_is_not_finite_is_counted_per_seed(name: str) -> None:
    device = torch.device(name)
    with stream_of(device):
        pack = Pack([Root(start) for start in (0.5, 100.0, 1.5)], device)
        steps = steps_of(pack)
        for _ in range(4):
            steps.take("loss", (), (), (torch.zeros(3),))
        assert steps.first_not_finite().tolist() == [2, 0, 3]
        assert pack.finite().tolist() == [False, True, False]
        again = steps_of(pack)
        again.restore(steps.state())
        assert again.first_not_finite().tolist() == [2, 0, 3]
        assert steps.under(Capture(device)).first_not_finite().tolist() == [0, 0, 0]


# Alone, the seed would have ended its training before it diverged.
def test_divergence_after_early_stopping_does_not_count(diverging: Tiny, tiny_graph: Dataset) -> None:
    context = prepare(diverging(), (0, 1), tiny_graph, CPU)
    pack = pretrain(context)
    stopping = EarlyStopping(pack, 1)
    stopping.update(np.array([0.5, 0.5]))
    stopping.update(np.array([0.6, 0.4]))  # only the first seed goes on
    steps = SimpleNamespace(first_not_finite=lambda: np.array([0, 7]))
    check_losses(context, steps, "meta-training", watched=stopping.active)
    steps = SimpleNamespace(first_not_finite=lambda: np.array([7, 7]))
    with pytest.raises(Diverged) as error:
        check_losses(context, steps, "meta-training", watched=stopping.active)
    assert list(error.value.failures) == [0]


OWN = {"inner_rate": RATE, "inner_steps": 5, "episodes": 4, "validate_every": 1, "pretrain_epochs": 1}
OWN |= {"n_way": 2, "k_shot": 2, "hidden": 8, "embedding": 4, "finetune_steps": 2}


@pytest.mark.slow
def test_command_writes_the_other_seeds_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    given = [f"--set={key}={value}" for key, value in OWN.items()]
    path = tmp_path / "records.json"
    task = ["--dataset", TINY, "--method", "meta-gnn", "--classes", "2", "2", "5", "--device", "cpu"]
    assert main([*task, "--seeds", "2", "--json", str(path), *given]) == 2
    assert [record["seed"] for record in json.loads(path.read_text())] == [1]
    output, error = capsys.readouterr()
    assert "session" in output  # the table of the other seed
    assert f"error: {REASON}" in error
