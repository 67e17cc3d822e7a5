"""A hyperparameter search on a real Ray: killed, resumed, and its choice confirmed on fresh seeds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import yaml

from study.store import Store

ROOT = Path(__file__).resolve().parents[2]
SPACE = """
description: a search of seconds
datasets: ["synthetic:nodes=1200,edges=5000,features=150,classes=14,seed=1"]
fixed: {classes: [4, 5, 5], n_way: 2, k_shot: 3, hidden: 16, embedding: 8, pretrain_epochs: 20,
        episodes: 60, validate_every: 30, finetune_steps: 1, val_classes: 2}
search: {algorithm: optuna, samples: 5, objective: val_accuracy}
sample:
  learning_rate: {loguniform: [0.001, 0.1]}
  dropout: {uniform: [0.0, 0.8]}
  loss: {choice: [categorical, binary]}
seeds: 2
"""


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "study" / "launch.py"), "--space", "tiny.yaml"],
        cwd=folder,
        env={**os.environ, "HAGMETA_HOME": str(folder / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def told(folder: Path) -> int:
    """Samples that Optuna's own storage calls complete."""
    path = folder / "results" / "tiny" / "optuna.db"
    if not path.exists():
        return 0
    study = optuna.load_study(study_name="tiny", storage=f"sqlite:///{path}")
    return len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE]))


def test_a_search_killed_and_resumed_ends_with_its_samples_and_confirms_the_best(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(SPACE)
    process = start(tmp_path)
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        time.sleep(0.1)
        try:
            if told(tmp_path) >= 2:
                break
        except Exception:  # the database is being made
            continue
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = told(tmp_path)
    assert 2 <= before < 5
    process = start(tmp_path)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output
    assert f"5 samples: {before} done, {5 - before} to go" in output
    assert told(tmp_path) == 5
    search, _ = output.split("best of 5 samples")
    assert "10/10 runs, 0 running" in search  # the samples of before included, and those that ASHA stopped
    assert "last session" not in search  # test streams are not looked at
    best = yaml.safe_load((tmp_path / "results" / "tiny" / "best.yaml").read_text())
    assert best["val_classes"] == 0
    # Test streams are answered by the best configuration alone, with seeds that the search never saw.
    confirmed = [r for r in Store(tmp_path / "results" / "tiny").records() if r["config"] == best]
    assert sorted(r["seed"] for r in confirmed) == list(range(2, 12))
    samples = [r for r in Store(tmp_path / "results" / "tiny").records() if r["config"]["val_classes"]]
    assert {r["seed"] for r in samples} == {0, 1}
    assert all(r["validation"]["stream"] is not None for r in samples)


def test_a_search_without_held_out_classes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(SPACE.replace("val_classes: 2", "val_classes: 0"))
    process = start(tmp_path)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2 and "val_classes" in output and "Traceback" not in output
