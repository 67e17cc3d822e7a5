"""Studies that are read, not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hagmeta
from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig, resolve
from study.store.store import Store
from tests.analysis.conftest import about, figures


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study of a setting that one of its methods does not have."""
    store = Store(tmp_path / "mine")
    for settings in ({"method": "frozen"}, *({"method": "er-gnn", "memory": m} for m in (5, 10))):
        config = resolve(RunConfig.of(**settings))
        for seed in range(6):
            scores = figures([0.5, 0.2 + (seed + settings.get("memory", 0)) / 100])
            store.write({**about(config), **scores, "seed": seed})  # type: ignore[typeddict-item]
    return store.folder


def content(folder: Path) -> dict[Path, Any]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_a_study_is_opened_without_changing_it(folder: Path) -> None:
    before = content(folder)
    study = hagmeta.open_study(folder)
    frame = study.frame()
    first = ["method", "dataset", "protocol", "n_way", "k_shot", "seed", "session", "config", "label"]
    assert list(frame)[:10] == [*first, "memory"] and "macro_accuracy" in frame and len(frame) == 3 * 6 * 2
    assert not hagmeta.open_study(folder).frame().isna()["memory"].any()
    # pandas drops rows whose key is None.
    assert frame.groupby(["method", "memory"]).size().to_dict() == {
        ("er-gnn", 5): 12,
        ("er-gnn", 10): 12,
        ("frozen", "does not apply"): 12,
    }
    assert [len(result.records) for result in study.results()] == [6, 6, 6]
    assert content(folder) == before


def test_rows_of_a_study_are_compared(folder: Path) -> None:
    frame = hagmeta.open_study(folder).frame()
    five, ten = (frame[frame["memory"] == memory] for memory in (5, 10))
    [pair] = hagmeta.compare(ten[ten["seed"] < 6], five).pairs
    assert pair.last.seeds == 6 and pair.last.mean == pytest.approx(0.05)
    with pytest.raises(UserError, match="do not say of which study they are"):
        hagmeta.compare(frame.groupby("config").first().reset_index().rename(columns={"seed": "s"}))


def test_a_study_is_complete_if_all_that_launches_asked_for_is_there(folder: Path) -> None:
    assert hagmeta.open_study(folder).complete
    configs = {path.name: {} for path in (folder / "runs").iterdir()}
    Store(folder).write_launch({"configs": configs, "seeds": [0, 6]})
    assert not hagmeta.open_study(folder).complete
    with pytest.raises(UserError, match="no study"):
        hagmeta.open_study(folder / "runs")
