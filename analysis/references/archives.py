"""Read archives: the stored results of published studies, one file per study and revision.

An archive has the configurations of its runs, their seeds and metrics by session, and the predictions of the
last session where the graph may be published. It is a file of arrays with a header in JSON, and has no
pickled objects. `study.store.archive` writes it, and never overwrites one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hagmeta.common.errors import UserError, choose
from hagmeta.common.records.metrics import BUILT_IN, DIAGNOSTICS
from hagmeta.common.records.records import OpenRecord
from hagmeta.common.settings.left_out import named_today

FOLDER = Path(__file__).resolve().parents[2] / "archives"
SUFFIX = ".npz"
FORMAT = 2
SCORES = tuple(each.name for each in BUILT_IN if each.score)  # one value per session
CURVES = (*SCORES, *(each.name for each in DIAGNOSTICS if each.shown), "forgetting")
OF_CONFIGURATION = (
    *("config", "config_hash", "data", "given", "unhashed", "scopes", "revisions"),
    *("leaks", "oracle", "traits"),
)


@dataclass(frozen=True)
class LastSession:
    """The queries of the last session for one graph and seed, as some configurations predicted them."""

    query: np.ndarray  # (queries,): nodes
    true: np.ndarray  # (queries,): classes
    predicted: np.ndarray  # (configurations, queries): classes, or -1
    hashes: list[str]  # of the configurations


@dataclass(frozen=True, eq=False)
class Archive:
    """The content of a file.

    Attributes:
        path: The file.
        header: What was run, from which code, by which commands, and the configurations.
        arrays: One row per run, or per run and session. Numbers have single precision.
    """

    path: Path
    header: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]

    @property
    def name(self) -> str:
        return self.path.stem

    @cached_property
    def records(self) -> list[OpenRecord]:
        """Return one record per run. Records lack matrices and accuracies by class."""
        ends = np.cumsum(self.arrays["sessions"].astype(int))
        return [
            self._record(row, slice(stop - count, stop))
            for row, (stop, count) in enumerate(
                zip(ends.tolist(), self.arrays["sessions"].tolist(), strict=True)
            )
        ]

    def _record(self, row: int, place: slice) -> OpenRecord:
        about = self.header["configurations"][int(self.arrays["configuration"][row])]
        curves = {name: _values(self.arrays[name][place]) for name in CURVES}
        told = {name: values for name, values in curves.items() if any(each is not None for each in values)}
        seconds = zip(self.header["phases"], _values(self.arrays["seconds"][row]), strict=True)
        (backward,) = _values(self.arrays["backward_transfer"][row : row + 1])
        seed = int(self.arrays["seed"][row])
        return {
            **about,
            **told,
            "forgetting": curves["forgetting"][1:],
            "backward_transfer": backward,
            "seed": seed,
            "seconds": {phase: value for phase, value in seconds if value is not None},
            "environment": self.header["environments"][int(self.arrays["environment"][row])],
            "classes_met": self.header["classes_met"][about["config"]["dataset"]][str(seed)],
            "validation": {},
        }

    def predictions(self, dataset: str, seed: int) -> LastSession | None:
        """Return the predictions of the last session; None if the file has none for this graph and seed."""
        key = f"{dataset} {seed}"
        if key not in self.header["predicted"]:
            return None
        with np.load(self.path, allow_pickle=False) as file:
            asked, labels, predicted = (
                file[name] for name in (f"asked {key}", f"labels {dataset}", f"predicted {key}")
            )
        query = np.flatnonzero(np.unpackbits(asked))
        true = labels[query]
        order = np.lexsort((query, true))  # as the rows of predictions
        return LastSession(query[order], true[order], predicted, self.header["predicted"][key])


def _values(array: np.ndarray) -> list[float | None]:
    return [None if value != value else value for value in array.tolist()]


@lru_cache
def read_archive(path: Path) -> Archive:
    """Read a file.

    Raises:
        UserError: The file is missing, damaged, or of another format.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(file["header"].tobytes())
            arrays = {name: file[name] for name in file.files if " " not in name and name != "header"}
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; expected an archive of results.") from None
    except Exception as error:  # a damaged archive raises many kinds of errors
        raise UserError(f"{path}: damaged file ({error}); install hagmeta again.") from None
    if header.get("format") != FORMAT:
        raise UserError(f"{path}: its format is {header.get('format')}; expected {FORMAT}.")
    header["configurations"] = [_with_names_of_today(about) for about in header["configurations"]]
    return Archive(path, header, arrays)


def _with_names_of_today(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a configuration with the names that settings have today."""
    names = named_today(about["config"])
    return {
        **about,
        "config": {name: about["config"][old] for old, name in names.items()},
        **{key: [names[old] for old in about[key] if old in names] for key in ("given", "unhashed")},
    }


def archive_of(name: str) -> Archive:
    """Return a packaged archive.

    Raises:
        UserError: There is no such archive.
    """
    return read_archive(FOLDER / f"{choose('archive', name, names())}{SUFFIX}")


def names() -> Sequence[str]:
    """Return the names of the packaged archives."""
    return sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}"))
