"""Code from outside the repository in studies: on workers, in records, and changed between two launches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray

from hagmeta.common.errors import UserError
from study.launch import main
from study.running import connection
from study.space import spaces as space
from study.store.store import Store
from tests.plugin_files import METHOD
from tests.waiting import HANG

ROOT = Path(__file__).resolve().parents[2]
ENCODER = '''
from hagmeta.layers.encoders.gcn import GCN

class Theirs(GCN):
    """An encoder of somebody else's."""
'''
DATASET = """
import numpy as np
from hagmeta.datasets.base import Dataset

def graph():
    draw = np.random.default_rng(0)
    labels, edges = np.repeat(np.arange(10), 40), draw.integers(0, 400, (2000, 2))
    return Dataset.from_arrays(edges, labels, draw.random((400, 30)) + np.eye(10, 30)[labels], name="made")
"""
METRIC = """
from hagmeta.scenarios.metrics import Metric

class Worst(Metric):
    name, title, by_session = "worst_class", "worst class", False

    def compute(self, predictions):
        last = predictions.counts()[-1]
        return float((last.right / last.asked).min())
"""
TASK = ("classes=4,2,4", "n_way=2", "k_shot=3", "pretrain_epochs=3", "episodes=4", "validate_every=4")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    texts = {"method": METHOD, "encoder": ENCODER, "dataset": DATASET, "metric": METRIC}
    for name, text in texts.items():
        (tmp_path / f"my_{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    return tmp_path


def command(*options: str) -> list[str]:
    settings = [word for text in (*TASK, "my_scale=2") for word in ("--set", text)]
    graph = ["--dataset", "my_dataset.py:graph", "--set", "encoder=my_encoder.py:Theirs"]
    return ["--methods", "sgc-ncm,my_method.py:Mine", *graph, *settings, "--seeds", "2", *options]


def test_a_plug_in_has_the_settings_of_the_method_that_it_extends(tmp_path: Path) -> None:
    (tmp_path / "sub.py").write_text(
        "from hagmeta.methods import METHODS\n\n"
        "class Sub(METHODS.find('cec')):\n    pass\n\n"
        "class Without(METHODS.find('cec')):\n    own_settings = None\n\n"
        "class Bare(METHODS.find('frozen')):\n    pass\n"
    )
    bare = space.of_methods([f"{tmp_path}/sub.py:Bare"], ["debian"]).resolved[0].canonical()
    frozen = space.of_methods(["frozen"], ["debian"]).resolved[0].canonical()
    assert bare.keys() == frozen.keys()
    studies = (
        space.of_methods([f"{tmp_path}/sub.py:{name}"], ["debian"], settings={"cosine_scale": "8"})
        for name in ("Sub", "Without")
    )
    inherits, without = (
        (study.resolved[0].canonical().get("cosine_scale"), study.notes) for study in studies
    )
    assert inherits == (8.0, ())
    assert without[0] is None and "`cosine_scale` does not apply" in without[1][0]  # not silently


def test_plug_ins_of_every_kind_run_on_workers_and_are_recorded(
    folder: Path, capsys: pytest.CaptureFixture[str], no_ray: None
) -> None:
    assert main(command("--metric", "my_metric.py:Worst", "--max-concurrent", "1")) == 0
    output = capsys.readouterr().out
    assert "4 runs (2 configurations x 2 seeds): 0 done, 4 to go" in output
    assert "\nstarting Ray on this machine; this takes a few seconds\n" in output  # not silent meanwhile
    store = Store(folder / "results" / "comparison")
    records = store.records()
    assert len(records) == 4
    mine = next(record for record in records if record["config"]["method"] != "sgc-ncm")
    for key, title in {"method": "Mine@", "encoder": "Theirs@", "dataset": "graph@"}.items():
        assert mine["config"][key].startswith(title)
    assert mine["config"]["my_scale"] == 2.0
    assert all("worst_class" in record and "worst_class" in record["metrics"] for record in records)
    assert "worst class" in (store.folder / "report" / "index.html").read_text()

    # A metric that is asked for later, or changed, comes from the predictions: nothing runs.
    (folder / "my_metric.py").write_text(METRIC.replace("min()", "max()") + METRIC.replace("orst", "ider"))
    again = ("--metric", "my_metric.py:Worst", "--metric", "my_metric.py:Wider", "--no-report")
    assert main(command(*again)) == 0
    assert "4 done, 0 to go" in capsys.readouterr().out and not ray.is_initialized()
    for before, after in zip(records, store.records(), strict=True):
        assert value(after, "worst_class") >= value(before, "worst_class") == value(after, "wider_class")
        assert after["accuracy"] == before["accuracy"]

    # A metric that fails is one line, and its runs are kept.
    (folder / "my_metric.py").write_text(METRIC.replace("last.right / last.asked", "last.wrong"))
    assert main(command(*again[:2])) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "AttributeError" in error and "Worst@" in error
    assert len(store.records()) == 4

    # Code that has changed since is refused: both versions are named.
    for file in ("method", "encoder", "dataset"):
        path = folder / f"my_{file}.py"
        text = path.read_text()
        path.write_text(text + "\n# changed\n")
        assert main(command()) == 2
        error = capsys.readouterr().err
        old = mine["config"][file]
        assert error.count("\n") == 1 and old in error and error.count(old.partition("@")[0] + "@") == 2
        path.write_text(text)
    assert main(command("--dry-run")) == 0


def value(record: Any, name: str) -> float:
    return float(record[name])


def test_the_settings_of_a_plug_in_are_those_of_a_space(folder: Path) -> None:
    (folder / "mine.yaml").write_text(
        "datasets: [debian]\nfixed: {val_classes: half}\ngrid: {method: [cec, 'my_method.py:Mine']}\n"
        "search: {algorithm: optuna, samples: 2, objective: val_accuracy}\n"
        "sample: {my_scale: {uniform: [0.5, 2.0]}, hidden: {choice: [16, 32]}}\n"
    )
    found = space.read("mine.yaml")
    sampled = {
        config.method.partition("@")[0]: [item.key for item in found.dimensions(config)]
        for config in found.configs
    }
    assert sampled == {"cec": ["hidden"], "Mine": ["my_scale", "hidden"]}
    (folder / "mine.yaml").write_text("datasets: [debian]\nfixed: {method: 'my_method.py:Mine'}\n")
    (config,) = space.read("mine.yaml", settings={"my_scale": "3"}).resolved
    assert config.canonical()["my_scale"] == 3.0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--methods", "no_file.py:Mine"], "no_file.py:Mine: no such file"),
        (["--methods", "my_method.py:Other"], "my_method.py:Other: the module has no 'Other'"),
        (["--methods", "my_metric.py:Worst"], "class Worst is not a valid method"),
        (["--methods", "cec", "--metric", "my_method.py:Mine"], "class Mine is not a valid metric"),
        (["--methods", "cec", "--metric", "acuracy"], "unknown metric 'acuracy'. Did you mean 'accuracy'?"),
        (["--methods", "cec", "--set", "encoder=my_method.py:Mine"], "class Mine is not a valid encoder"),
    ],
)
def test_a_bad_plug_in_is_one_line_before_anything_starts(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], named: str
) -> None:
    assert main([*options, "--dataset", "debian"]) == 2
    output = "".join(capsys.readouterr())
    assert output.startswith("error: ") and output.count("\n") == 1 and named in output
    assert not (folder / "results").exists()


def test_workers_are_given_the_plug_ins_by_path_or_by_copy(folder: Path) -> None:
    staged = folder / "plugins" / "hagmeta_plugins_0123"
    here = connection._environment(None, ROOT, staged)["env_vars"]
    assert here["HAGMETA_PLUGINS"] == staged.name
    assert str(staged.parent) in here["PYTHONPATH"].split(os.pathsep)
    there = connection._environment("auto", ROOT, staged)
    assert there["py_modules"] == [str(staged)] and there["env_vars"]["HAGMETA_PLUGINS"] == staged.name
    assert "py_modules" not in connection._environment("auto", ROOT, None)


@pytest.mark.slow
def test_a_plug_in_runs_on_a_cluster_whose_nodes_do_not_have_it(folder: Path) -> None:
    program = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
print(cluster.address, flush=True)
sys.stdin.readline()
cluster.shutdown()
"""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    node = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=elsewhere,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert node.stdin is not None and node.stdout is not None
    address = node.stdout.readline().strip()
    done = subprocess.run(
        [sys.executable, str(ROOT / "study" / "launch.py"), *command("--address", address, "--no-report")],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    node.communicate("stop\n", timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(Store(folder / "results" / "comparison").records()) == 4


@pytest.mark.slow
def test_a_ray_of_ours_starts_again_for_plug_ins_and_one_of_the_users_is_left_alone(
    folder: Path, no_ray: None
) -> None:
    def seen() -> str | None:
        return ray.get(ray.remote(os.getenv).remote("HAGMETA_PLUGINS"))

    (folder / "plugins" / "hagmeta_plugins_0123").mkdir(parents=True)
    staged = folder / "plugins" / "hagmeta_plugins_0123"
    try:
        connection.start_ray(None, ROOT)
        assert seen() is None
        connection.start_ray(None, ROOT, plugins=staged)
        assert seen() == staged.name
        connection.end_ray()
        assert not ray.is_initialized()
        ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
        with pytest.raises(UserError, match=r"call ray\.shutdown\(\) first"):
            connection.start_ray(None, ROOT, plugins=staged)
        assert connection.start_ray(None, ROOT)["CPU"] == 1
        connection.end_ray()
        assert ray.is_initialized()
    finally:
        ray.shutdown()
