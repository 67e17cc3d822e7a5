"""Hyperparameter searches on a real Ray: killed, resumed, and their choices confirmed on fresh seeds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

import hagmeta
from hagmeta.config.run_config import resolve
from study.launch import main
from study.search.history import SearchHistory, open_histories
from study.space import spaces as space
from study.store.store import Store
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[3]
START = "         start: [{learning_rate: 0.0000001, finetune_steps: 0}]"
SPACE = """
description: searches of seconds
datasets: ["synthetic:nodes=1200,edges=5000,features=150,classes=14,seed=1"]
fixed: {classes: [4, 5, 5], n_way: 2, k_shot: 3, hidden: 16, embedding: 8, pretrain_epochs: 10,
        episodes: 20, validate_every: 10, val_classes: half}
grid: {method: [hag-meta, frozen]}
search: {algorithm: optuna, samples: 3, objective: val_accuracy,
START}
sample:
  learning_rate: {choice: [0.005, 0.0000001]}
  dropout: {uniform: [0.0, 0.8]}
  finetune_steps: {randint: [0, 2]}
seeds: 3
""".replace("START", START)


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "study" / "launch.py"), "--space", "tiny.yaml", *options],
        cwd=folder,
        env={**os.environ, "HAGMETA_HOME": str(folder / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def histories(folder: Path) -> list[SearchHistory]:
    """Return the searches as far as there are records."""
    return open_histories(space.read(str(folder / "tiny.yaml")), Store(folder / "results" / "tiny"))


def in_journal(folder: Path) -> list[list[int]]:
    """Return the complete samples of each search that the file for Optuna's dashboard has."""
    storage = JournalStorage(JournalFileBackend(str(folder / "results" / "tiny" / "optuna.log")))
    studies = [optuna.load_study(study_name=n, storage=storage) for n in optuna.get_all_study_names(storage)]
    return [
        [trial.user_attrs["sample"] for trial in s.get_trials(states=(TrialState.COMPLETE,))] for s in studies
    ]


def end_after_two_samples(folder: Path) -> int:
    """Kill a launch; return how many samples had ended."""
    process = start(folder, "--max-concurrent", "2")  # some are left when two are done
    wait_for(lambda: sum(len(history.found) for history in histories(folder)) >= 2, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = sum(len(history.found) for history in histories(folder))
    assert 2 <= before < 6
    (folder / "results" / "tiny" / "optuna.log").write_bytes(b"no journal")  # nothing reads it
    return before


# test_history.py has searches that are killed, without machines to run them.
@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_searches_end_with_their_samples_and_confirm_the_best(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    shared_ray: None,
    killed: bool,
) -> None:
    (tmp_path / "tiny.yaml").write_text(SPACE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("analysis.figures.FIGURES", {})  # they take seconds
    before = end_after_two_samples(tmp_path) if killed else 0
    assert main(["--space", "tiny.yaml", "--max-concurrent", "1"]) == 0
    output = capsys.readouterr().out
    assert f"2 searches of 3 samples, with 1 starting point: {before} done, {6 - before} to go" in output
    assert in_journal(tmp_path) == [[0, 1, 2]] * 2  # none lost, none twice
    search, confirmation = output.split("hag-meta: best of 3 samples", 1)
    assert "18/18 runs, 0 running" in search  # the samples of before included
    assert "last session" not in search  # test streams are not looked at
    assert "frozen: best of 3 samples" in confirmation
    assert "test nodes" in confirmation and "under a seed of the search" in confirmation
    # Test streams are answered by the best of each alone, with seeds that the search never saw.
    records = Store(tmp_path / "results" / "tiny").records()
    samples = [record for record in records if record["config"]["val_classes"]]
    assert {record["seed"] for record in samples} == set(range(3)) and len(samples) == 18
    assert all(record["config"]["val_classes"] == 2 for record in samples)
    assert all(record["validation"]["last"] is not None for record in samples)
    confirmed = {(r["config_hash"], r["seed"]) for r in records if not r["config"]["val_classes"]}
    best = space.read(str(tmp_path / "results" / "tiny" / "best.yaml"))
    hashes = {resolve(config).hash() for config in best.configs}
    [launched] = (tmp_path / "results" / "tiny" / "launches").glob("*.json")
    launch = json.loads(launched.read_text())
    [design] = launch["designs"]
    defaults = {cell["default"] for cell in launch["search"]["cells"]}
    assert design["kind"] == "ranking" and set(design["configs"]) == hashes
    assert len(hashes) == 2 and best.seeds == tuple(range(3, 13))
    assert confirmed == {(name, seed) for name in hashes | defaults for seed in best.seeds}
    study = hagmeta.open_study(tmp_path / "results" / "tiny")
    frame = study.frame()
    assert study.complete and frame.groupby("role")["config"].unique().map(set).to_dict() == {
        "tuned": hashes,
        "default": defaults - hashes,
    }
    found = {(record["config_hash"], record["seed"]) for each in study.results() for record in each.records}
    assert found == confirmed
    # The report is of those, in one table, and says how they were chosen.
    report = tmp_path / "results" / "tiny" / "report"
    (table,) = report.glob("tables/sessions-*.md")
    rows = [
        line for line in table.read_text().splitlines() if line.startswith(("| HAG-Meta (", "| Frozen ("))
    ]
    assert len(rows) == len(hashes | defaults)
    page = (report / "index.html").read_text()
    assert "the best of 3 samples in 2 searches with 1 starting point" in page
    assert "under a seed of the search" in page


def test_a_search_without_held_out_classes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.yaml").write_text(SPACE.replace("val_classes: half", "val_classes: 0"))
    monkeypatch.chdir(tmp_path)
    assert main(["--space", "tiny.yaml"]) == 2
    error = capsys.readouterr().err
    assert "val_classes" in error and error.startswith("error: ") and error.count("\n") == 1


def test_a_dry_run_of_searches_tells_what_each_varies_and_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.yaml").write_text(SPACE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--space", "tiny.yaml", "--dry-run"]) == 0
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= 80
    output = " ".join(output.split()) + " "  # long lines are wrapped
    assert "2 searches of 3 samples, with 1 starting point: 0 done, 6 to go" in output
    assert "2 searches x 3 samples x 3 seeds = 18 runs; then 4 configurations x 10 fresh seeds" in output
    assert "design: ranking of methods " in output
    assert "hag-meta: 0 done; varies learning_rate, dropout, finetune_steps " in output
    assert "frozen: 0 done; varies learning_rate, dropout " in output
    assert not (tmp_path / "results").exists()
