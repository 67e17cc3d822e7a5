"""A study of several N uses one class split on a graph that has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import make_dataset
from hagmeta.datasets.formats import npz
from study import launch
from study.space import spaces as space


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file without a class split, with 45 classes of 30 nodes and three of 20."""
    path = tmp_path_factory.mktemp("graph") / "own.npz"
    labels = np.concatenate([np.repeat(np.arange(45), 30), np.repeat(np.arange(45, 48), 20)])
    rows = np.arange(len(labels))
    edges = np.stack([rows[:-1], rows[1:]], axis=1)
    npz.save(path, make_dataset("own", edges, labels, np.eye(4)[rows % 4], source="test"))
    return str(path)


def classes_of(graph: str, **axes: Any) -> dict[tuple[Any, ...], Any]:
    found = space.read({"datasets": [graph], "fixed": {"method": "sgc-ncm"}, **axes})
    return {
        (config.n_way, config.k_shot, config.protocol): (config.classes, config.drop_small)
        for config in found.resolved
    }


def alone(graph: str, **settings: Any) -> Any:
    return resolve(RunConfig.of(dataset=graph, method="sgc-ncm", **settings)).classes


def test_all_values_of_n_share_a_split_and_a_note_says_which(graph: str) -> None:
    assert len({alone(graph, n_way=n_way) for n_way in (2, 3, 5)}) > 1
    found = space.read({"datasets": [graph], "grid": {"method": ["sgc-ncm", "frozen"], "n_way": [2, 3, 5]}})
    assert {config.classes for config in found.resolved} == {(13, 10, 25)}
    assert len(found.configs) == 6 and [config.n_way for config in found.configs] == [2, 3, 5] * 2
    assert found.notes == (
        "using classes 13 10 25 (base, novel-train, novel-test) for all of n_way 2, 3, 5, because own.npz "
        "has no class split; set others with --set classes=13,10,25",
    )
    assert not space.read({"datasets": [graph, "debian"], "grid": {"n_way": [3]}}).notes


def test_one_n_keeps_the_split_of_a_run(graph: str) -> None:
    (split,) = classes_of(graph, grid={"n_way": [2]}).values()
    assert split[0] == alone(graph, n_way=2)


def test_given_classes_stay(graph: str) -> None:
    splits = classes_of(graph, grid={"n_way": [2, 3]}, cases=[{"classes": [10, 10, 12]}])
    assert {classes for classes, _ in splits.values()} == {(10, 10, 12)}


def test_classes_that_are_too_small_for_one_task_are_left_out_of_all(graph: str) -> None:
    splits = classes_of(graph, grid={"protocol": ["strict", "released"]})
    assert set(splits.values()) == {(alone(graph, protocol="released"), True)}
    assert alone(graph) != alone(graph, protocol="released")


def test_a_launch_prints_the_note(graph: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ways.yaml"
    file.write_text(f"datasets: ['{graph}']\nfixed: {{method: sgc-ncm}}\ngrid: {{n_way: [2, 5]}}\n")
    assert launch.main(["--space", str(file), "--dry-run", "--results", str(tmp_path)]) == 0
    assert "note: using classes 18 10 20" in capsys.readouterr().out
