"""What trials tell while they run, and where it is seen."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig, resolve
from study.planning.plan import Trial
from study.running import loggers, reports
from study.running.reports import LiveReports
from study.store.store import Store
from study.terminal.naming import names_of
from study.terminal.progress import StudyProgress
from tests.study.test_launch import SPACE, events_in, folder, launch  # noqa: F401


def test_a_trial_reports_at_most_once_a_second_and_a_sample_nothing_of_test_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, told = 0.0, []
    monkeypatch.setattr(reports.time, "monotonic", lambda: now)
    monkeypatch.setattr(reports.tune, "report", told.append)
    study, sample = LiveReports(), LiveReports(tells_test=False)
    for tenth in range(100):
        now = tenth / 10
        study("meta-train", tenth, 100, {"val": 0.5})
    assert [each["step"] for each in told] == list(range(10, 100, 10))
    assert told[0] == {"phase": "meta-train", "step": 10, "steps": 100, "meta-train/val": 0.5}
    told.clear()
    now = 60.0
    study("test", 1, 9, {"accuracy": 0.7})
    sample("test", 1, 9, {"accuracy": 0.7})
    assert [each.get("test/accuracy") for each in told] == [0.7, None]


def test_the_terminal_shows_what_runs_and_how_far_it_is() -> None:
    output = io.StringIO()
    console = Console(file=output, width=120, force_terminal=True, markup=False)
    trial = Trial.of(RunConfig.of(dataset="npz:[x].npz", classes=(2, 2, 2), n_way=1), (0, 1))
    with StudyProgress(console, [trial], 0) as progress:
        progress.started("a", trial)
        progress.goes_on("a", "meta-train", 25, 1000, {"meta-train/val": 0.512})
        progress.goes_on("of no trial that runs", "test", 1, 2, {})
        console.print(progress._panel())
    shown = output.getvalue()
    assert "hag-meta on [x].npz, seeds 0-1" in shown and "meta-train 25/1000, 51.2 %" in shown


def unnamed(configs: Sequence[Any], seeds: Sequence[int]) -> list[str]:
    return []


class Started:
    """A trial of Tune."""

    def __init__(self, *trials: Trial) -> None:
        configs = [config.canonical() for trial in trials for config in trial.configs]
        members = [(place, seed) for place, trial in enumerate(trials) for seed in trial.seeds]
        self.config = {"spec": {"name": trials[0].name, "configs": configs, "members": members}}
        self.last_result = {"accuracy": 0.5, "time_total_s": 3.0}


def test_tensorboard_names_runs_and_has_their_settings(tmp_path: Path) -> None:
    on, off = (Trial.of(resolve(RunConfig.of(tla=tla)), (0, 1)) for tla in (True, False))
    names = names_of([*on.configs, *off.configs])
    [logger] = loggers.make_loggers(["tensorboard"], Store(tmp_path), names.of, Console(quiet=True))
    for trial in (Started(on), Started(off), Started(on, off), Started(off, on)):
        logger.log_trial_start(trial)  # type: ignore[attr-defined]
        result = {"training_iteration": 1, "meta-train/val": 0.4, "time_total_s": 3.0}
        logger.log_trial_result(1, trial, result)  # type: ignore[attr-defined]
        logger.log_trial_end(trial)  # type: ignore[attr-defined]
    where, pack = "hag-meta on debian", "hag-meta on debian, 2 configurations, seeds 0-1"
    named = [f"{where}, TLA on, seeds 0-1", f"{where}, TLA off, seeds 0-1", pack, f"{pack} {off.name}"]
    folders = {path.parent.name: path for path in tmp_path.glob("tensorboard/*/events*")}
    assert set(folders) == set(named)
    values = [value for event in events_in(folders[named[0]]) for value in event.summary.value]
    tags = [value.tag for value in values]
    assert tags == [
        "meta-train/val",
        *[f"_hparams_/{part}" for part in ("experiment", *["session_start_info"], "session_end_info")],
    ]
    assert b"learning_rate" in folders[named[0]].read_bytes()


def test_mlflow_and_wandb_have_settings_and_curves_of_a_trial(
    folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    (folder / "tiny.yaml").write_text(SPACE.replace("nla: [false, true], tla: [false, true]", "nla: [true]"))
    options = ("--set", "episodes=150", "--set", "patience=150", "--log", "mlflow", "--log", "wandb")
    code, output = launch(folder, *options, "--seeds-per-trial", "2", "--no-report")
    assert code == 0 and "Traceback" not in output, output
    study = folder / "results" / "tiny"
    client = mlflow.MlflowClient(f"sqlite:///{study / 'mlflow.db'}")
    [run] = client.search_runs([client.get_experiment_by_name("tiny").experiment_id])
    [record, _] = Store(study).records()
    assert run.info.run_name.startswith("hag-meta on ") and run.info.run_name.endswith(", seeds 0-1")
    assert run.info.status == "FINISHED"
    assert run.data.params == {**{k: str(v) for k, v in record["config"].items()}, "seeds": "[0, 1]"}
    curve = client.get_metric_history(run.info.run_id, "meta-train/val")
    assert len(curve) >= 2 and len({metric.step for metric in curve}) == len(curve)
    # All sessions, whatever was told of them as they went; and nothing that Tune adds.
    metrics = run.data.metrics
    means = np.mean([record["accuracy"] for record in Store(study).records()], axis=0)
    assert [metrics.pop(f"session/{number}") for number in range(len(means))] == pytest.approx(means)
    told = {"accuracy", "trial_seconds", "pre-train/val", "meta-train/val", "test/accuracy"}
    assert {"accuracy", "meta-train/val"} <= set(metrics) <= told
    # What was written for Weights & Biases is whole: its name, its settings, its curve and its end.
    [written] = study.glob("wandb/offline-run-*/*.wandb")
    content = written.read_bytes()
    for text in (run.info.run_name, "learning_rate", "meta-train/val", "trial_seconds"):
        assert text.encode() in content
    assert f"wandb sync {study / 'wandb' / 'offline-run-*'}" in output


def test_a_logger_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="--log mlflow needs the package mlflow: pip install mlflow"):
        loggers.check_loggers(["mlflow"])


def test_wandb_without_an_account_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # where a login would be
    with pytest.raises(UserError, match="WANDB_API_KEY, or run wandb login"):
        loggers.make_loggers(["wandb"], Store(tmp_path), unnamed, Console(quiet=True))


def test_an_mlflow_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(UserError, match=r"--log mlflow cannot use http://127\.0\.0\.1:1: "):
        loggers.make_loggers(["mlflow"], Store(tmp_path), unnamed, Console(quiet=True))
