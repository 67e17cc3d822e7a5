"""Read hyperparameter searches from Optuna's storage and draw them with Optuna's plots."""

from __future__ import annotations

import sqlite3
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from analysis.drawing import Drawing
from analysis.figures import search_plots
from analysis.figures.search_style import Search
from analysis.frame import Results

FEWEST_SAMPLES = 8
MOST_SEARCHES = 2  # per study: a dozen methods would give fifty figures


def draw(results: Results) -> Iterator[Drawing]:
    """Yield four figures for each of the first searches with enough samples."""
    for folder in results.folders:
        there = _load(folder, results.searches.get(folder.name)) if (folder / "optuna.db").is_file() else []
        large = [search for search in there if len(search.study.trials) >= FEWEST_SAMPLES]
        for search in large[:MOST_SEARCHES]:
            yield from search_plots.draw(replace(search, others=len(large) - len(large[:MOST_SEARCHES])))


def _load(folder: Path, told: Mapping[str, Any] | None) -> list[Search]:
    """Return the searches that the launches name, otherwise all in the storage."""
    try:
        studies = _studies(folder / "optuna.db")
    except sqlite3.Error as error:
        warnings.warn(
            f"cannot read {folder / 'optuna.db'} ({error}); its figures are left out.", stacklevel=2
        )
        return []
    names = {cell["study"]: cell["title"] for cell in told["cells"]} if told else {}
    found = [_search(names.get(name, name), trials) for name, trials in studies.items()]
    by_name = dict(zip(studies, found, strict=True))
    return [by_name[name] for name in names or studies if name in by_name]


def _search(name: str, trials: list[FrozenTrial]) -> Search:
    scored = [trial for trial in trials if trial.value is not None and trial.state.is_finished()]
    scored.sort(key=lambda trial: trial.user_attrs.get("sample", trial.number))
    study = optuna.create_study(direction="maximize")
    study.add_trials([_in_percent(trial) for trial in scored])
    lost = sum(trial.state in (TrialState.FAIL, TrialState.RUNNING) for trial in trials)
    return Search(name, study, lost)


def _studies(database: Path) -> dict[str, list[FrozenTrial]]:
    """Return the trials of each study by name, from a copy, so that a running search is not disturbed."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "optuna.db"
        with (
            closing(sqlite3.connect(f"file:{database.resolve()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
        storage = optuna.storages.RDBStorage(f"sqlite:///{copy}")
        names = optuna.get_all_study_names(storage)
        studies = {name: optuna.load_study(study_name=name, storage=storage).trials for name in names}
        storage.engine.dispose()
    return studies


def _in_percent(trial: FrozenTrial) -> FrozenTrial:
    return optuna.trial.create_trial(
        params=trial.params, distributions=trial.distributions, value=100 * float(trial.value or 0)
    )
