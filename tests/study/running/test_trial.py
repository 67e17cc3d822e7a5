from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hagmeta.config.run_config import RunConfig, resolve
from study.running import trial
from study.search.trial import run_sample

SPEC = {
    "configs": [
        resolve(
            RunConfig.of(
                dataset="synthetic:nodes=1200,edges=5000,features=150,classes=14,seed=1",
                method="frozen",
                classes=(4, 5, 5),
                n_way=2,
                k_shot=3,
                hidden=16,
                embedding=8,
                pretrain_epochs=2,
            )
        ).canonical()
    ],
    "members": [(0, 0)],
    "threads": 1,
    "gpu_share": 0,
    "snapshot": None,
    "eager": False,
    "metrics": [],
}
# At this inner rate, the loss of seed 0 overflows, and that of seed 1 does not.
DIVERGING = {
    "dataset": "synthetic:nodes=401,edges=1500,features=60,classes=10,seed=1",
    "method": "meta-gnn",
    "classes": [2, 2, 5],
    "n_way": 2,
    "k_shot": 2,
    "hidden": 8,
    "embedding": 4,
    "inner_steps": 5,
    "inner_rate": 60.0,
    "pretrain_epochs": 1,
    "episodes": 4,
    "validate_every": 1,
    "finetune_steps": 2,
    "scored_on": "validation",
}


def test_a_trial_is_done_with_the_report_of_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise Tune would run it again if its worker dies between that report and the end of the function.
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path))
    reports: list[dict[str, Any]] = []
    monkeypatch.setattr(trial.tune, "report", reports.append)
    trial.run_trial(SPEC | {"checkpoints": str(tmp_path / "checkpoints")})
    told = [bool(report.get("records")) for report in reports]
    assert told[-1] and told == [bool(report.get("done")) for report in reports]


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        (trial.run_trial, (0, 1)),
        pytest.param(run_sample, (0,), marks=pytest.mark.slow),
        pytest.param(trial.run_trial, (0,), marks=pytest.mark.slow),
        pytest.param(run_sample, (0, 1), marks=pytest.mark.slow),
    ],
)
def test_diverged_run_is_reported_next_to_the_records_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[[Any], None], seeds: tuple[int, ...]
) -> None:
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path))
    reports: list[dict[str, Any]] = []
    monkeypatch.setattr(trial.tune, "report", reports.append)
    config = resolve(RunConfig.of(DIVERGING))
    own = {"configs": [config.canonical()], "members": [(0, seed) for seed in seeds]}
    kind(SPEC | own | {"checkpoints": str(tmp_path / "checkpoints")})
    last = reports[-1]
    assert last["done"] and "failed" not in last
    assert [record["seed"] for record in json.loads(last["records"])] == list(seeds[1:])
    (run,) = json.loads(last["diverged"])
    assert (run["config_hash"], run["seed"]) == (config.hash(), 0)
    assert run["reason"] == "meta-gnn diverged with seed 0: its loss is not finite in meta-training, step 3"
