"""Studies from Python, and comparisons of methods without a file."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pytest
import ray
from rich.console import Console

import hagmeta
from hagmeta import datasets
from hagmeta.common.errors import UserError
from hagmeta.datasets import Dataset
from study.api import launch
from study.launch import main
from study.options import LaunchOptions
from study.planning import data
from study.planning.packing import LAST
from study.space import spaces as space
from study.store.store import Store

NAME = "synthetic:nodes=600,edges=2500,features=60,classes=10,seed=1"
TASK: dict[str, Any] = {"classes": [4, 2, 4], "n_way": 2, "k_shot": 3}


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
    made = datasets.load(NAME, tmp_path)
    graph = Dataset.from_arrays(made.edges, made.labels, made.features, name="mine")
    graphs = {graph.identity: graph}
    options = LaunchOptions(
        methods=("sgc-ncm",),
        datasets=tuple(graphs),
        settings=TASK,
        seeds=2,
        seeds_per_trial=1,
        max_concurrent=1,
        results=str(tmp_path / "results"),
        report=False,
    )
    folder = tmp_path / "results" / "comparison"
    if interrupted:
        with pytest.raises(KeyboardInterrupt):
            launch(None, options, graphs, Impatient(file=io.StringIO(), width=120))
        assert not ray.is_initialized() and len(Store(folder).records()) == 1
        assert not data.in_memory(graphs)  # what was lent is given back

    def go_on() -> None:
        asked: dict[str, Any] = {"results": tmp_path / "results", "report": False, "max_concurrent": 1}
        studies.append(hagmeta.study(methods=["sgc-ncm"], datasets=graph, settings=TASK, seeds=2, **asked))

    studies: list[hagmeta.Study] = []
    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    thread.join()
    output = capsys.readouterr().out
    done = int(interrupted)
    assert f"2 runs (1 configuration x 2 seeds): {done} done, {2 - done} to go" in output
    (found,) = studies
    assert found.complete and found.folder == folder, output
    assert not ray.is_initialized() and not data.in_memory(graphs)
    records = Store(folder).records()
    assert len(records) == 2 and {record["config"]["dataset"] for record in records} == set(graphs)
    # What workers found is what a run in this process finds.
    frame = found.frame()
    assert len(frame) == 2 * 3 and set(frame["dataset"]) == {"mine"}
    alone = hagmeta.run("sgc-ncm", graph, seeds=2, **TASK)
    kept = frame.sort_values(["seed", "session"])["macro_accuracy"]
    assert list(kept) == list(alone.frame()["macro_accuracy"])
    assert found.report(out=tmp_path / "page").is_file()


def test_a_comparison_is_the_space_that_a_file_would_give(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        f"datasets: ['{NAME}', debian]\nfixed: {{classes: [4, 3, 3]}}\ngrid: {{method: [sgc-lda, hag-meta]}}"
    )
    written = space.read(tmp_path / "mine.yaml")
    made = space.of_methods(["sgc-lda", "hag-meta"], [NAME, "debian"], settings={"classes": "4,3,3"})
    assert made.resolved == written.resolved and made.seeds == written.seeds == tuple(range(10))
    assert made.name == "comparison" and made.search is None
    # A setting that one method has no use for is no error: here, hops of a method with an encoder.
    assert len(space.of_methods(["sgc-lda", "hag-meta"], ["debian"], settings={"hops": "3"}).configs) == 2


def test_a_mapping_is_read_as_a_file_would_be(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("datasets: [debian]\ngrid: {hidden: [16, 32]}\nseeds: 3\n")
    content = {"datasets": ["debian"], "grid": {"hidden": (16, 32)}, "seeds": 3}
    written = space.read(tmp_path / "mine.yaml")
    made = space.read(content)
    assert (made.resolved, made.seeds) == (written.resolved, written.seeds) and made.name == "study"
    del content["datasets"]
    assert space.read(content, datasets=["debian"], name="other").resolved == written.resolved


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({}, "the space: datasets is missing"),
        ({"datasets": ["debian"], "gird": {}}, "gird: unknown key 'gird'. Did you mean 'grid'?"),
        ({"datasets": ["debian"], "grid": {"hidden": [16, "x"]}}, "grid.hidden: hidden is 'x'"),
        ({"datasets": ["debian"], "fixed": {"hiden": 3}}, "fixed.hiden: unknown setting 'hiden'"),
        (
            {"datasets": ["debian"], "fixed": {"hidden": 16}, "grid": {"hidden": [32]}},
            "grid.hidden: grid sets hidden, but fixed.hidden also sets it; remove one of them.",
        ),
        ({"datasets": [Path("x")]}, "datasets: the value is PosixPath('x'); expected text or a number."),
        ({"datasets": ["debian"], 3: 4}, "the space: the key is 3; expected a name."),
    ],
)
def test_an_error_in_a_mapping_names_its_key(content: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError) as error:
        space.read(content)
    assert str(error.value).startswith(named)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--methods", "sgc-lda,nope", "--dataset", "debian"], "unknown method 'nope'"),
        (["--methods", "sgc-lda", "--space", "smoke"], "--space and --methods cannot be combined"),
        (["--methods", "sgc-lda", "--dataset", "debian", "--quick"], "--quick needs --space"),
        (["--methods", "sgc-lda"], "--methods needs at least one --dataset"),
        (["--methods", "sgc-lda,", "--dataset", "debian"], "--methods is 'sgc-lda,'"),
        (["--methods", ""], "--methods is ''"),
        (["--methods", "sgc-lda", "--dataset", "debain"], "Did you mean 'debian'?"),
        (["--methods", "sgc-lda", "--dataset", "debian", "--set", "method=cec"], "method cannot be set"),
        (["--methods", "sgc-lda", "--dataset", "debian", "--set", "hosp=3"], "Did you mean 'hops'?"),
        (["--methods", "sgc-lda", "--dataset", "debian", "--name", "a/b"], "'a/b' cannot name the folder"),
    ],
)
def test_a_bad_comparison_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    named: str,
) -> None:
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    assert main([*options, "--results", str(tmp_path / "results")]) == 2
    output = "".join(capsys.readouterr())
    assert output.startswith("error: ") and output.count("\n") == 1 and named in output
    assert not (tmp_path / "results").exists()


def test_options_take_values_and_texts_alike() -> None:
    texts = LaunchOptions(
        seeds="3",  # type: ignore[arg-type]
        time_budget="2h",  # type: ignore[arg-type]
        retries="1",  # type: ignore[arg-type]
        gpus_per_trial="auto",  # type: ignore[arg-type]
        save_embeddings="last",  # type: ignore[arg-type]
        datasets="debian",  # type: ignore[arg-type]
    )
    values = LaunchOptions(
        seeds=(0, 1, 2), time_budget=7200, retries=1, save_embeddings=LAST, datasets=("debian",)
    )
    assert texts == values


@pytest.mark.parametrize(
    "wrong",
    [
        {"retries": -1},
        {"retries": 1.5},
        {"retries": True},
        {"time_budget": 0},
        {"time_budget": float("nan")},
        {"seeds": [0, 0]},
        {"seeds": [0.5]},
        {"seeds": ["x"]},
        {"max_concurrent": 0},
    ],
)
def test_options_of_the_wrong_kind_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong)).replace("_", "-").removesuffix("s")):
        LaunchOptions(**wrong)
