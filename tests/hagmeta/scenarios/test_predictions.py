"""The predictions that are kept of a run are enough to compute its metrics anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from hagmeta.common.errors import UserError
from hagmeta.common.records.records import opened
from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.options import RunOptions
from hagmeta.engine.run import run
from hagmeta.engine.scores.embeddings import to_bytes
from hagmeta.scenarios import PROTOCOLS
from hagmeta.scenarios.evaluator import BINS, calibration_error
from hagmeta.scenarios.metrics import metrics_of
from hagmeta.scenarios.predictions import LEVELS, NO_NUMBER, Predictions, read_predictions


def small_file() -> bytes:
    found = Predictions((np.array([300, 2]), np.array([7]), np.array([4])))
    found.add(np.array([9, 70_000]), np.array([300, -1]), np.array([300, 2]))
    found.add(np.array([9, 9, 8]), np.array([300, 7, 7]), np.array([300, 300, 7]))
    found.add(np.array([9, 8, 1]), np.array([300, 4, 4]), np.array([300, 7, 4]))
    return to_bytes(found.arrays())


def test_a_file_holds_rows_of_small_integers(tmp_path: Path) -> None:
    (tmp_path / "0.npz").write_bytes(small_file())
    with np.load(tmp_path / "0.npz") as arrays:
        assert {name: (values.dtype.name, values.tolist()) for name, values in arrays.items()} == {
            "session": ("uint8", [2, 1, 2, 0, 1, 1, 2, 0]),
            "query": ("uint32", [1, 8, 8, 9, 9, 9, 9, 70_000]),
            "predicted": ("int16", [4, 7, 4, 300, 300, 7, 300, -1]),
            "true": ("uint16", [4, 7, 7, 300, 300, 300, 300, 2]),
            "classes": ("uint16", [300, 2, 7, 4]),
            "arrived": ("uint8", [0, 0, 1, 2]),
        }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_metric_can_be_computed_anew_from_the_file(
    protocol: str, small: Callable[..., RunConfig], dataset: Dataset, tmp_path: Path
) -> None:
    config = small(protocol=protocol, query_shot=3)
    for record, predictions, _ in run(config, [0, 1], dataset, RunOptions(device=torch.device("cpu"))):
        (tmp_path / "kept.npz").write_bytes(to_bytes(predictions.arrays()))
        read = read_predictions(tmp_path / "kept.npz")
        metrics = metrics_of(read)
        assert bool(read.confidence) == (not PROTOCOLS[protocol].leaks)
        errors = [calibration_error(*each) for each in zip(read.confidence, read.correct(), strict=False)]
        assert errors == pytest.approx(opened(record).get("calibration_error", []), abs=6e-5)
        assert "macro_f1" in metrics and metrics.items() <= json.loads(json.dumps(record)).items()
        assert [len(row) for row in record["class_accuracy"]] == [9, 11, 13]
        assert len(set(record["classes_met"])) == 13


def test_a_confidence_stays_in_its_bin(tmp_path: Path) -> None:
    """Also at the edges of bins, so that the calibration error can be computed again."""
    assert LEVELS % BINS == 0 and LEVELS <= NO_NUMBER
    edges = np.linspace(0, 1, BINS + 1)
    given = np.concatenate([edges, edges[1:] - 1e-6, edges[:-1] + 1e-6, [np.nan]])
    rows = np.arange(len(given))
    found = Predictions((np.array([0]), np.array([1])))
    for _ in range(2):
        found.add(rows, rows * 0, rows * 0, given)
    (tmp_path / "0.npz").write_bytes(to_bytes(found.arrays()))
    _, back = read_predictions(tmp_path / "0.npz").confidence
    assert np.abs(back - given)[:-1].max() <= 1e-5 and np.isnan(back[-1])
    one, other = (np.minimum((each[:-1] * BINS).astype(int), BINS - 1) for each in (given, back))
    assert one.tolist() == other.tolist()


def test_a_file_without_confidences_is_read(tmp_path: Path) -> None:
    (tmp_path / "0.npz").write_bytes(small_file())
    assert read_predictions(tmp_path / "0.npz").confidence == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: b"garbage",
        lambda content: content[: len(content) // 2],
        lambda content: content[:60] + bytes(20) + content[80:],
        lambda content: to_bytes({"session": np.zeros(3, dtype=np.uint8)}),
        lambda content: to_bytes({"session": np.array(None)}),
        lambda content: to_bytes(dict.fromkeys(("session", "query", "predicted", "true"), np.zeros(3))),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "7.npz"
    path.write_bytes(damage(small_file()))
    with pytest.raises(UserError, match=r"7\.npz: damaged file"):
        read_predictions(path)
