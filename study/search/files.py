"""Write what a launch has searched: one file per search for reports, and one for Optuna's dashboard.

No launch reads these files: the records are enough to continue a search.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import optuna
from optuna.distributions import distribution_to_json
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from hagmeta.common.files.files import written_whole
from study.search.history import SearchHistory, distributions
from study.store.store import Store


def write(histories: Sequence[SearchHistory], store: Store) -> None:
    """Write the files of the searches of a launch to the folder of its study."""
    for history in histories:
        store.write_search(_content(history))
    with TemporaryDirectory() as folder, written_whole(store.folder / "optuna.log") as partial:
        journal = Path(folder) / "optuna.log"  # Optuna locks it, which not every shared disk allows
        _write_journal(histories, journal)
        shutil.copyfile(journal, partial)


def _content(history: SearchHistory) -> dict[str, Any]:
    """Return the ranges of a search and its samples, as plain values."""
    ranges = distributions(history.cell.dimensions)
    return {
        "name": history.cell.name,
        "title": history.cell.title,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "ranges": {key: json.loads(distribution_to_json(value)) for key, value in ranges.items()},
        "samples": [
            {
                "sample": number,
                "state": trial.state.name.lower(),
                "objective": trial.value,
                "by_seed": list(trial.intermediate_values.values()),
                "values": trial.params,
            }
            for number, trial in history.trials().items()
        ],
    }


def _write_journal(histories: Sequence[SearchHistory], path: Path) -> None:
    """Write one Optuna study per search; a database would take thirty times as long."""
    storage = JournalStorage(JournalFileBackend(str(path)))
    for history in histories:
        study = optuna.create_study(storage=storage, study_name=history.cell.name, direction="maximize")
        study.add_trials(history.trials().values())
