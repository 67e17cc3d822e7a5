"""The files of a search are for reports and for the dashboard of Optuna; launches do not read them."""

from __future__ import annotations

import json
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from study.search import files
from study.search.history import SearchHistory, open_histories
from study.space import spaces as space
from study.store.store import Store

SEARCH = {
    "datasets": ["debian"],
    "fixed": {"val_classes": "half", "method": "cec"},
    "search": {"algorithm": "optuna", "samples": 4, "objective": "val_accuracy"},
    "sample": {"learning_rate": {"loguniform": [0.001, 0.1]}, "hidden": {"choice": [16, 32]}},
    "seeds": 2,
}


def search_in(folder: Path) -> SearchHistory:
    """Return a search whose samples have ended, but for a failed one."""
    (history,) = open_histories(space.read(SEARCH), Store(folder))
    for number in range(3):
        history.tell(number, [(0.5, 0.6), (0.7, number / 10)])
    history.failed[3] = "its run failed"
    return history


def journal_in(folder: Path) -> list[optuna.Study]:
    storage = JournalStorage(JournalFileBackend(str(folder / "optuna.log")))
    names = optuna.get_all_study_names(storage)
    return [optuna.load_study(study_name=name, storage=storage) for name in names]


def test_files_hold_the_samples_of_a_search(tmp_path: Path) -> None:
    history = search_in(tmp_path)
    files.write([history], Store(tmp_path))
    (path,) = (tmp_path / "searches").iterdir()
    content = json.loads(path.read_text())
    assert path.stem == content["name"] == history.cell.name
    assert [each["state"] for each in content["samples"]] == ["complete"] * 3 + ["fail"]
    assert [each["values"] for each in content["samples"]] == [history.values[n] for n in range(4)]
    (study,) = journal_in(tmp_path)
    assert [trial.params for trial in study.trials] == [history.values[n] for n in range(4)]
    assert [trial.value for trial in study.trials] == [each["objective"] for each in content["samples"]]


# Optuna's files are only for its dashboard, so nothing in them is needed.
def test_damaged_files_of_optuna_are_not_read(tmp_path: Path) -> None:
    for name in ("optuna.db", "optuna.log"):
        (tmp_path / name).write_bytes(b"no database" * 100)
    files.write([search_in(tmp_path)], Store(tmp_path))
    assert len(journal_in(tmp_path)) == 1
