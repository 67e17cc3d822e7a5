"""Whole studies on a real Ray: they finish, resume, extend and fail as promised."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import ray
import torch
from rich.console import Console
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c

import hagmeta
from hagmeta import datasets
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.datasets.formats import npz
from hagmeta.scenarios.metrics import metrics_of
from hagmeta.scenarios.predictions import read_predictions
from hagmeta.testing import records_of
from study.api import launch as launch_study
from study.launch import main
from study.options import LaunchOptions
from study.planning import data
from study.store.store import Store
from tests.study.conftest import start_shared_ray
from tests.study.store.test_store import record as made
from tests.waiting import HANG, wait_for

ROOT = Path(__file__).resolve().parents[2]
HAS_GPU = torch.cuda.is_available()
SPACE = """
description: a study of seconds
datasets: ["synthetic:nodes=1200,edges=5000,features=150,classes=14,seed=1"]
fixed: {method: hag-meta, classes: [4, 5, 5], n_way: 2, k_shot: 3, hidden: 16, embedding: 8,
        pretrain_epochs: 20, episodes: 20, validate_every: 10, finetune_steps: 2}
grid: {nla: [false, true], learning_rate: [0.005, 0.01]}
seeds: 2
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with prepared(tmp_path):
        yield tmp_path


@contextmanager
def prepared(folder: Path) -> Iterator[None]:
    """A folder with the space to launch there."""
    (folder / "tiny.yaml").write_text(SPACE)
    yield
    # A killed driver may leave workers that are still on their way out.
    for process in psutil.process_iter(["environ"]):
        environment = process.info["environ"] or {}
        if environment.get("HAGMETA_HOME") == str(folder / "home") and process.pid != os.getpid():
            with suppress(psutil.NoSuchProcess):
                process.kill()


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "study" / "launch.py"), "--space", str(folder / "tiny.yaml")]
    return subprocess.Popen(
        [*command, "--results", str(folder / "results"), *options],
        cwd=folder,  # any working directory will do
        env={**os.environ, "HAGMETA_HOME": str(folder / "home"), "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def launch(folder: Path, *options: str) -> tuple[int, str]:
    process = start(folder, *options)
    output, _ = process.communicate(timeout=HANG)
    return process.returncode, output


Launch = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def launch_here() -> Launch:
    """The same in this process, for what nobody kills: its imports take seconds."""

    def launch(folder: Path, *options: str) -> tuple[int, str]:
        output = io.StringIO()
        given = ["--space", str(folder / "tiny.yaml"), "--results", str(folder / "results")]
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(output):
            patch.chdir(folder)
            patch.setenv("HAGMETA_HOME", str(folder / "home"))
            patch.setenv("COLUMNS", "120")
            code = main([*given, *options])
        return code, output.getvalue()

    return launch


def workers(driver: int, named: str) -> list[psutil.Process]:
    """Ray's workers below a driver that are called so."""
    found = []
    for child in psutil.Process(driver).children(recursive=True):
        with suppress(psutil.Error):
            if child.name().startswith("ray::") and named in "".join(child.cmdline()):
                found.append(child)
    return found


def records_in(folder: Path) -> list[Path]:
    return list((folder / "results" / "tiny" / "runs").glob("*/*.json"))


def results(folder: Path) -> dict[tuple[str, int], Any]:
    """What the runs found, without what tells of time and place."""
    store = Store(folder / "results" / "tiny")
    return {(r["config_hash"], r["seed"]): (r["matrix"], r["accuracy"]) for r in store.records()}


def assert_predictions_are_kept(folder: Path) -> None:
    """With every record, and all its metrics follow from them."""
    store = Store(folder / "results" / "tiny")
    for record in store.records():
        predictions = read_predictions(store.predictions_of((record["config_hash"], record["seed"])))
        assert metrics_of(predictions).items() <= record.items()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, launch_here: Launch) -> Iterator[Path]:
    """Where a study ended that nothing disturbed."""
    folder = tmp_path_factory.mktemp("finished")
    with prepared(folder):
        start_shared_ray()
        code, output = launch_here(folder, "--save-embeddings", "1", "--max-concurrent", "1", "--no-report")
        assert code == 0 and "8 runs (4 configurations x 2 seeds): 0 done, 8 to go" in output, output
        [launched] = (folder / "results" / "tiny" / "launches").glob("*.json")
        [design] = json.loads(launched.read_text())["designs"]
        assert design["levels"] == {"nla": [False, True], "learning_rate": [0.005, 0.01]}
        assert "\n2 trials; " in output  # two configurations each, which differ in their learning rates
        yield folder


def test_a_study_runs_once(
    finished: Path, folder: Path, launch_here: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(results(finished)) == 8
    # Embeddings of the queries of session 1, with what a picture of them needs.
    kept = sorted((finished / "results" / "tiny" / "embeddings").glob("*/*-1.npz"))
    assert len(kept) == 8
    with np.load(kept[0]) as arrays:
        assert arrays["embeddings"].shape == (len(arrays["nodes"]), 8)
        assert set(arrays["arrived"]) == {0, 1} and len(set(arrays["labels"])) == 4 + 5 + 2
    # The same command again has nothing to do, starts no Ray, and makes the report that was not asked for.
    monkeypatch.setattr("study.api.start_ray", lambda *_: pytest.fail("nothing is left to run"))
    shutil.copytree(finished, folder, dirs_exist_ok=True)
    code, output = launch_here(folder)
    assert code == 0 and "8 done, 0 to go" in output
    page = folder / "results" / "tiny" / "report" / "index.html"
    assert "\nwriting the report ...\n- 2 seeds: too few to test, at least 6 needed." in output
    assert f"report: {page}" in output.replace("\n", "") and page.stat().st_size > 10_000
    # In a bucket the same: what is there is not run again.
    os.rename(folder / "results" / "tiny", folder / "tiny")
    code, output = launch_here(folder, "--results", folder.as_uri(), "--no-report")
    assert code == 0 and "8 done, 0 to go" in output, output


def test_a_run_is_the_same_in_a_trial_of_several_configurations_and_alone(finished: Path) -> None:
    store = Store(finished / "results" / "tiny")
    shared = [record for record in store.records() if record["environment"]["seeds_in_pack"] == 4]
    assert len(shared) == 8
    config = resolve(RunConfig.of(shared[0]["config"]))
    graph = datasets.load(config.dataset, finished / "home" / "data")
    alone = records_of(config, [0, 1], graph)
    for record in json.loads(json.dumps(alone)):
        other = store.find((config.hash(), record["seed"]))
        assert other and {key for key in record if record[key] != other[key]} == {"seconds", "environment"}


GRAPH = "synthetic:nodes=600,edges=2500,features=60,classes=10,seed=1"
SMALL_TASK: dict[str, Any] = {"classes": [4, 2, 4], "n_way": 2, "k_shot": 3}


class Impatient(Console):
    """Ctrl-C as soon as the first trial has finished."""

    def print(self, *objects: Any, **how: Any) -> None:
        super().print(*objects, **how)
        if str(objects[0]).startswith("1/2 runs"):
            raise KeyboardInterrupt


# test_signals.py has a study that is interrupted.
@pytest.mark.parametrize("interrupted", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_study_of_a_graph_in_memory_runs_in_any_thread_and_goes_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], interrupted: bool
) -> None:
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("analysis.figures.FIGURES", {})  # they take seconds
    graph_of = datasets.load(GRAPH, tmp_path)
    graph = Dataset.from_arrays(graph_of.edges, graph_of.labels, graph_of.features, name="mine")
    graphs = {graph.identity: graph}
    options = LaunchOptions(
        methods=("sgc-ncm",),
        datasets=tuple(graphs),
        settings=SMALL_TASK,
        seeds=2,
        seeds_per_trial=1,
        max_concurrent=1,
        results=str(tmp_path / "results"),
        report=False,
    )
    folder = tmp_path / "results" / "comparison"
    if interrupted:  # in a Ray of its own
        ray.shutdown()
        with pytest.raises(KeyboardInterrupt):
            launch_study(None, options, graphs, Impatient(file=io.StringIO(), width=120))
        assert not ray.is_initialized() and len(Store(folder).records()) == 1
        assert not data.in_memory(graphs)  # what was lent is given back
    else:
        start_shared_ray()

    def go_on() -> None:
        asked: dict[str, Any] = {"results": tmp_path / "results", "report": False, "max_concurrent": 1}
        studies.append(
            hagmeta.study(methods=["sgc-ncm"], datasets=graph, settings=SMALL_TASK, seeds=2, **asked)
        )

    studies: list[hagmeta.Study] = []
    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    thread.join()
    output = capsys.readouterr().out
    done = int(interrupted)
    assert f"2 runs (1 configuration x 2 seeds): {done} done, {2 - done} to go" in output
    (found,) = studies
    assert found.complete and found.folder == folder, output
    assert ray.is_initialized() != interrupted and not data.in_memory(graphs)
    records = Store(folder).records()
    assert len(records) == 2 and {record["config"]["dataset"] for record in records} == set(graphs)
    # What workers found is what a run in this process finds.
    frame = found.frame()
    assert len(frame) == 2 * 3 and set(frame["dataset"]) == {"mine"}
    alone = hagmeta.run("sgc-ncm", graph, seeds=2, **SMALL_TASK)
    kept = frame.sort_values(["seed", "session"])["macro_accuracy"]
    assert list(kept) == list(alone.frame()["macro_accuracy"])
    assert found.report(out=tmp_path / "page").is_file()


# test_kills.py has studies that are killed.
def test_a_study_is_extended_and_mends_itself(
    folder: Path, finished: Path, launch_here: Launch, shared_ray: None
) -> None:
    shutil.copytree(finished, folder, dirs_exist_ok=True)
    # Another seed and another value on an axis run only what they add; a damaged and a lost record too.
    damaged, lost, *_ = sorted(records_in(folder))
    damaged.write_text(damaged.read_text()[:100])
    lost.unlink()
    (folder / "tiny.yaml").write_text(SPACE.replace("grid: {", "grid: {gpil: [false, true], "))
    code, output = launch_here(folder, "--seeds", "3", "--max-concurrent", "1", "--no-report")
    assert code == 0, output
    assert "24 runs (8 configurations x 3 seeds): 6 done, 18 to go" in output
    assert "moved a record aside, to run it again" in output and damaged.name in output
    assert_predictions_are_kept(folder)
    found, undisturbed = results(folder), results(finished)
    assert len(found) == 24 and {key: found[key] for key in undisturbed} == undisturbed


def test_a_killed_worker_is_tried_again_while_others_watch_and_a_run_that_fails_is_not(
    folder: Path, launch_here: Launch
) -> None:
    # Data that is there when the driver looks and gone when a worker does.
    gone = folder / "gone.npz"
    npz.save(gone, datasets.load("synthetic:nodes=401,edges=1500,features=60,classes=14,seed=1", folder))
    text = SPACE.replace("nla: [false, true], learning_rate: [0.005, 0.01]", "nla: [true]")
    (folder / "tiny.yaml").write_text(text.replace('seed=1"]', f"seed=1\", 'npz:{gone}']"))
    options = ("--set", "episodes=240", "--set", "patience=240", "--log", "tensorboard", "--no-report")
    process = start(folder, "--max-concurrent", "1", *options)
    worker, *_ = wait_for(lambda: workers(process.pid, "train"), process)
    worker.suspend()  # the study cannot end before the second launch has looked
    gone.unlink()
    # A second launch does not meet the first.
    (folder / "tiny.yaml").write_text(text)
    code, output = launch_here(folder)
    assert code == 2 and "another launch is using" in output
    worker.kill()
    output, _ = process.communicate(timeout=HANG)
    assert process.returncode == 1, output
    assert output.count("failed: its worker died") == output.count("it will run again") == 1
    assert "Traceback" not in output and len(output.splitlines()) < 30
    assert len(results(folder)) == 2  # the others go on
    # One line says why a run has failed and where its traceback is; what cannot heal is not tried again.
    said = [line for line in output.splitlines() if "gone.npz: no such file" in line]
    assert len(said) == 2 and all("/failed/" in line for line in said) and "2 failed" in output, output
    failures = sorted((folder / "results" / "tiny" / "failed").glob("*/*.json"))
    assert [path.stem for path in failures] == ["0", "1"]
    assert "gone.npz" in failures[0].with_suffix(".txt").read_text()
    # TensorBoard has the curves of the trial.
    assert f"tensorboard --logdir {folder / 'results' / 'tiny' / 'tensorboard'}" in output
    files = list((folder / "results" / "tiny" / "tensorboard").glob("*/events.out.tfevents.*"))
    tags = [value.tag for file in files for event in events_in(file) for value in event.summary.value]
    assert tags.count("meta-train/val") >= 2 and "accuracy" in tags and "_hparams_/experiment" in tags
    # Nothing of Tune's own is large: records are in our files alone.
    others = [path for path in (folder / "results").rglob("tune/**/*") if path.is_file()]
    assert all(path.stat().st_size < 100_000 and path.name != "result.json" for path in others)


def events_in(file: Path) -> list[Any]:
    """Length, its checksum, content, its checksum: again and again."""
    content, events = file.read_bytes(), []
    while content:
        length = int.from_bytes(content[:8], "little")
        assert int.from_bytes(content[8:12], "little") == masked_crc32c(content[:8])
        events.append(Event.FromString(content[12 : 12 + length]))
        content = content[16 + length :]
    return events


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--seeds", "x"], "seeds 'x'"),
        (["--retries", "many"], "--retries is 'many'"),
        (["--gpus-per-trial", "-1"], "--gpus-per-trial"),
        (["--time-budget", "soon"], "--time-budget is 'soon'"),
        (["--spaec", "x"], "Did you mean '--space'?"),
        (["--seeds", ""], "seeds ''"),
        (["--results", ""], "--results is empty"),
        (["--results", "s3://key:secret@bucket"], "--results contains credentials"),
        (["--results", "x" * 5000], "cannot be written: File name too long"),
        (["--results", "x" * 300, "--dry-run"], "cannot be written: File name too long"),
        (["--results", "/".join(["x" * 99] * 41), "--dry-run"], "cannot be written: File name too long"),
        (["--space", f"{'x' * 5000}.yaml"], "no such file"),
        (["--results", "a\0b"], r"--results is 'a\x00b'; paths"),
        (["--space", "a\0b.yaml"], r"--space is 'a\x00b.yaml'; paths"),
        (["--dataset", "npz:a\0b"], r"--dataset is 'npz:a\x00b'; paths"),
        (["--cpus-per-trial", "1e-300"], "--cpus-per-trial is 1e-300; the smallest share in Ray is 0.0001"),
        (["--gpus-per-trial", "0.00001"], "--gpus-per-trial is 1e-05; the smallest"),
        (["--gpus-per-trial", "1.5"], "--gpus-per-trial is 1.5"),
        (["--cpus-per-trial", "0", "--gpus-per-trial", "0"], "are both 0"),
        (["--members-per-trial", "0"], "--members-per-trial is '0'; expected auto or a whole number"),
        (
            ["--members-per-trial", "9", "--seeds-per-trial", "2"],
            "--members-per-trial is 9 and --seeds-per-trial",
        ),
        (["--log", "comet"], "unknown logger 'comet'"),
        (["--address", "ray://127.0.0.1:10001"], "with --address auto: by ray exec, ray job submit or ssh"),
        (["--address", "nonsense"], "--address is 'nonsense'; expected auto, or the head's HOST:PORT"),
        (["--dry-run", "--address", "auto"], "--dry-run"),
        (["--set", "hiden=3"], "hiden"),
        (["--results", "/proc/nowhere"], "/proc/nowhere"),
        (["--results", "s4://bucket/results"], "--results s4://bucket/results"),
        (["--save-embeddings", "7"], "a session from 0 to 2"),
        (["--open", "--no-report"], "--open needs the report"),
        (["--mps", "--address", "auto"], "--mps starts NVIDIA MPS on this machine"),
        pytest.param(
            ["--mps"], "--mps needs a GPU", marks=pytest.mark.skipif(HAS_GPU, reason="there is one")
        ),
    ],
)
def test_bad_input_is_one_line_before_anything_starts(
    folder: Path, launch_here: Launch, options: list[str], named: str
) -> None:
    code, output = launch_here(folder, *options)
    assert code == 2, output
    error = [line for line in output.splitlines() if line.startswith("error: ")]
    assert len(error) == 1 and named in error[0]
    assert "Traceback" not in output
    assert not list(folder.glob("results/*/runs/*/*.json"))


def test_bad_input_ends_a_real_process_with_status_2_and_one_line(folder: Path) -> None:
    code, output = launch(folder, "--seeds", "x")
    assert code == 2 and output.startswith("error: seeds 'x'") and output.count("\n") == 1


def test_a_dry_run_prints_the_trials_and_writes_nothing(folder: Path, launch_here: Launch) -> None:
    code, output = launch_here(folder, "--dry-run")
    assert code == 0 and "0 done, 8 to go" in output and output.count("seeds 0-1\n") == 4
    assert not (folder / "results").exists()


def test_the_first_command_plans_the_same_with_and_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked(url: object, **_: object) -> object:
        raise AssertionError(f"{url} was asked for")

    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    command = ["--space", "ablation", "--quick", "--dry-run", "--results", str(tmp_path / "results")]
    with monkeypatch.context() as with_a_network:
        with_a_network.setattr(urllib.request, "urlopen", asked)
        assert main(command) == 0
    plan = capsys.readouterr().out
    assert "72 runs (12 configurations x 6 seeds): 0 done, 72 to go" in plan
    monkeypatch.setattr(urllib.request, "_opener", None)  # it would keep the proxies, for later tests as well
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
    assert main(command) == 0
    assert capsys.readouterr().out == plan
    # A dataset that is asked for and cannot be downloaded is an error: nothing runs in its place.
    assert main([*command, "--dataset", "amazon-clothing"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: cannot fetch Amazon_clothing_network from https://raw.github")


def test_spaces_are_listed_with_their_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("smoke", "hyperparameters"):  # few: the largest take seconds
        shutil.copy(ROOT / "search_spaces" / f"{name}.yaml", tmp_path)
    monkeypatch.setattr("study.space.spaces.FOLDER", tmp_path)
    assert main(["--list"]) == 0
    output = capsys.readouterr().out
    assert [line for line in output.splitlines() if line[:1].islower()] == ["hyperparameters", "smoke"]
    assert "16 runs" in output and "64 samples" in output and output.count("--quick: ") == 2


def test_a_space_file_of_dots_does_not_write_above_its_results(folder: Path, launch_here: Launch) -> None:
    (folder / "...yaml").write_text(SPACE)
    code, output = launch_here(folder, "--space", str(folder / "...yaml"))
    assert code == 2 and output.count("\n") == 1 and "'..' cannot name the folder" in output


@pytest.mark.parametrize("home", ["", "~nobody-of-this-name/x", "/dev/null/x", "/proc/x"])
def test_a_home_that_cannot_be_used_is_said_before_anything_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: str
) -> None:
    monkeypatch.setenv("HAGMETA_HOME", home)
    code = main(["--space", str(folder / "tiny.yaml"), "--results", str(folder / "results")])
    output = "".join(capsys.readouterr())
    assert code == 2 and output.count("\n") == 1 and "HAGMETA_HOME" in output
    assert not (folder / "results").exists()


def test_a_full_disk_is_one_line(folder: Path, launch_here: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        try:
            raise OSError(errno.ENOSPC, "No space left on device", "runs/0.json")
        except OSError:
            raise RuntimeError("as Tune raises it") from None

    monkeypatch.setattr("study.api.start_ray", full)
    code, output = launch_here(folder)
    assert code == 1 and output.splitlines()[-1].startswith("error: No space left on device; check ")
    assert "Traceback" not in output


def test_another_graph_under_the_same_name_is_not_done(folder: Path, launch_here: Launch) -> None:
    def graph(seed: int) -> Dataset:
        text = f"synthetic:nodes=300,edges=900,features=40,classes=6,seed={seed}"
        return datasets.load(text, folder)

    npz.save(folder / "graph.npz", graph(1))
    (folder / "tiny.yaml").write_text(
        "datasets: ['npz:graph.npz']\nfixed: {classes: [2, 2, 2], n_way: 1, k_shot: 1}\nseeds: 1\n"
    )
    config = resolve(RunConfig.of(dataset="npz:graph.npz", classes=(2, 2, 2), n_way=1, k_shot=1))
    store = Store(folder / "results" / "tiny")
    store.write(made(0, config=config) | {"data": graph(1).fingerprint})
    assert "1 done, 0 to go" in launch_here(folder, "--dry-run")[1]
    npz.save(folder / "graph.npz", graph(2))
    assert "0 done, 1 to go" in launch_here(folder, "--dry-run")[1]
