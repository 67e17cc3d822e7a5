"""A hyperparameter search: its samples as Optuna keeps them, handed to Optuna's own plots."""

from __future__ import annotations

import sqlite3
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
from optuna.trial import FrozenTrial, TrialState

from analysis.drawing import Drawing
from analysis.figures import search_plots
from analysis.figures.search_style import Search
from analysis.frame import Results

FEWEST_SAMPLES = 8


def draw(results: Results) -> Iterator[Drawing]:
    """Four figures for each study that was a search of at least a few samples."""
    for folder in results.folders:
        search = _load(folder, results.runs) if (folder / "optuna.db").is_file() else None
        if search is not None and len(search.finished) >= FEWEST_SAMPLES:
            yield from search_plots.draw(search)


def _load(folder: Path, runs: pd.DataFrame) -> Search | None:
    try:
        trials = _trials(folder / "optuna.db")
    except sqlite3.Error as error:
        warnings.warn(f"{folder / 'optuna.db'} cannot be read ({error}): no figures of it.", stacklevel=2)
        return None
    told = [trial for trial in trials if trial.value is not None and trial.state.is_finished()]
    if not told:
        return None
    study = optuna.create_study(direction="maximize")
    study.add_trials([_in_percent(trial) for trial in told])
    finished = [_has_record(trial.params, runs) for trial in told]
    lost = sum(trial.state in (TrialState.FAIL, TrialState.RUNNING) for trial in trials)
    return Search(folder.name, study, finished, lost)


def _trials(database: Path) -> list[FrozenTrial]:
    """The search's memory, read from a copy: neither the file nor a search that still runs is touched."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "optuna.db"
        with (
            closing(sqlite3.connect(f"file:{database.resolve()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
        storage = optuna.storages.RDBStorage(f"sqlite:///{copy}")
        studies = optuna.get_all_study_names(storage)
        trials = optuna.load_study(study_name=studies[0], storage=storage).trials if studies else []
        storage.engine.dispose()
    return trials


def _in_percent(trial: FrozenTrial) -> FrozenTrial:
    return optuna.trial.create_trial(
        params=trial.params, distributions=trial.distributions, value=100 * float(trial.value or 0)
    )


def _has_record(params: dict[str, Any], runs: pd.DataFrame) -> bool:
    """Whether a sample ran to its end: only then it left records."""
    same = pd.Series(True, index=runs.index)
    for key, value in params.items():
        same &= runs[key] == value
    return bool(same.any())
