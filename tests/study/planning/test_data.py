"""A worker keeps its dataset between trials, and no trial can tell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hagmeta import datasets
from hagmeta.common.errors import UserError
from hagmeta.common.files.home import home
from hagmeta.config.run_config import RunConfig
from study.planning import data
from study.running import trial
from study.running.reports import LiveReports

SMALL, OTHER = (f"synthetic:nodes=600,edges=2500,features=80,classes=12,seed={seed}" for seed in (1, 2))


def write(path: Path, name: str) -> None:
    graph = datasets.load(name, Path())
    features = graph.features
    np.savez(
        path,
        edges=graph.edges,
        labels=graph.labels,
        feature_indptr=features.indptr,
        feature_indices=features.indices,
        num_features=features.shape[1],
    )


def test_the_last_dataset_is_kept_and_no_other() -> None:
    first = data.load(SMALL)
    assert data.load(SMALL) is first
    other = data.load(OTHER)
    assert other.name == OTHER and not np.array_equal(other.edges, first.edges)
    assert data.load(SMALL) is not first


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    write(path, SMALL)
    first = data.load(f"npz:{path}")
    write(path, OTHER)
    os.utime(path, ns=(1, 1))  # two writes may share a tick of the clock
    assert not np.array_equal(data.load(f"npz:{path}").edges, first.edges)
    path.unlink()
    with pytest.raises(UserError, match=r"graph\.npz"):
        data.load(f"npz:{path}")


class Silent(LiveReports):
    def __call__(self, *_: object) -> None:
        pass


def outcome(name: str) -> list[Any]:
    """The records of a trial, without what clocks and memory say."""
    config = RunConfig.of(
        dataset=name,
        method="proto-gcn",
        classes=(4, 4, 4),
        n_way=2,
        k_shot=3,
        hidden=8,
        pretrain_epochs=1,
        finetune_steps=1,
    )
    spec: trial.TrialSpec = {
        "name": "",
        "configs": [config.canonical()],
        "members": [(0, 0), (0, 1)],
        "threads": 1,
        "gpu_share": 0,
        "snapshot": None,
        "eager": False,
        "checkpoints": str(home() / "checkpoints"),
        "metrics": [],
    }
    records, *_ = trial.run_spec(spec, Silent())
    return [(r["config_hash"], r["seed"], r["accuracy"], r["matrix"], r["validation"]) for r in records]


def test_records_of_a_kept_worker_are_those_of_fresh_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path))
    data._kept.clear()
    first, again, other, last = (outcome(name) for name in (SMALL, SMALL, OTHER, SMALL))
    assert first == again == last != other
    # That processes do not matter is in `test_launch.py`: records of a worker are those of another process.
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "fresh"))
    data._kept.clear()
    assert outcome(OTHER) == other
