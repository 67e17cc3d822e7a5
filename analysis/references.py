"""Read the reference results: records of all methods on embedded graphs, made by `study.build_references`.

`load_references` returns them in the form in which a report reads the folders of studies. The file is an
archive of arrays with a header in JSON, and has no pickled objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from analysis.frame import Gathered, Results, results_of
from hagmeta.common.errors import UserError, choose
from hagmeta.common.metrics import BUILT_IN, DIAGNOSTICS
from hagmeta.common.records import OpenRecord, RunKey

PATH = Path(__file__).with_name("references.npz")
FORMAT = 1
TUNED, DEFAULTS = "tuned", "defaults"
KINDS = (DEFAULTS, TUNED)
STUDY = "references"  # the name of their study in tables
SCORES = tuple(each.name for each in BUILT_IN if each.score)  # one value per session
CURVES = (*SCORES, *(each.name for each in DIAGNOSTICS if each.shown), "forgetting")
OF_CONFIGURATION = (
    *("config", "config_hash", "data", "given", "unhashed", "births", "revisions"),
    *("leaks", "oracle", "traits"),
)


@dataclass(frozen=True)
class LastSession:
    """The queries of the last session for one graph and seed, as all tuned methods predicted them."""

    query: np.ndarray  # (queries,): nodes
    true: np.ndarray  # (queries,): classes
    predicted: np.ndarray  # (configurations, queries): classes, or -1
    hashes: list[str]  # of the configurations


@dataclass(frozen=True, eq=False)
class References:
    """The content of the file.

    Attributes:
        header: The command that made the file, the studies, and the configurations.
        arrays: One row per run, or per run and session. Numbers have single precision.
    """

    header: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]

    @cached_property
    def records(self) -> list[OpenRecord]:
        """Return one record per run, with its kinds. Records lack matrices and accuracies by class."""
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

    def of(self, kind: str, datasets: Sequence[str] | None = None) -> list[OpenRecord]:
        """Return the records of a kind, on some datasets or on all."""
        choose("kind of references", kind, KINDS)
        return [
            record
            for record in self.records
            if kind in record["kinds"] and (datasets is None or record["config"]["dataset"] in datasets)
        ]

    def predictions(self, dataset: str, seed: int) -> LastSession | None:
        """Return the predictions of the last session; None if the file has none for this graph and seed."""
        key = f"{dataset} {seed}"
        if f"predicted {key}" not in self.arrays:
            return None
        query = np.flatnonzero(np.unpackbits(self.arrays[f"asked {key}"]))
        true = self.arrays[f"labels {dataset}"][query]
        order = np.lexsort((query, true))  # as the rows of predictions
        return LastSession(
            query[order], true[order], self.arrays[f"predicted {key}"], self.header["predicted"][key]
        )

    def answers(self, dataset: str, key: RunKey) -> dict[str, np.ndarray] | None:
        """Return queries, predictions and true classes of a run at the last session, or None."""
        last = self.predictions(dataset, key[1])
        if last is None or key[0] not in last.hashes:
            return None
        row = last.predicted[last.hashes.index(key[0])]
        return {"query": last.query, "true": last.true.astype(int), "predicted": row.astype(int)}

    def known(self, dataset: str, seed: int) -> frozenset[int]:
        """Return the classes that are known at session 0."""
        config = next(c["config"] for c in self.header["configurations"] if c["config"]["dataset"] == dataset)
        met = self.header["classes_met"][dataset][str(seed)]
        return frozenset(met[: len(met) - config["sessions"] * config["n_way"]])


def _values(array: np.ndarray) -> list[float | None]:
    return [None if value != value else value for value in array.tolist()]


@lru_cache(maxsize=2)
def read_references(path: Path = PATH) -> References:
    """Read the file of reference results.

    Raises:
        UserError: The file is missing, damaged, or of another format.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive)
        header = json.loads(arrays.pop("header").tobytes())
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; expected the reference results.") from None
    except Exception as error:  # a damaged archive raises many kinds of errors
        raise UserError(f"{path}: damaged file ({error}); install hagmeta again.") from None
    if header.get("format") != FORMAT:
        raise UserError(f"{path}: its format is {header.get('format')}; expected {FORMAT}.")
    return References(header, arrays)


def load_references(
    kind: str = DEFAULTS,
    metric: str | None = None,
    *,
    datasets: Sequence[str] | None = None,
    path: Path = PATH,
) -> Results:
    """Return the reference results as tables that all functions of a report accept.

    Args:
        kind: `tuned` for the configurations that searches chose, `defaults` for the defaults of methods.
        metric: The score of headlines and tests; macro accuracy by default.
        datasets: The graphs; all by default.
        path: The file.

    Raises:
        UserError: The file cannot be read, or it has no such results.
    """
    found = read_references(path)
    return replace(as_results(found.of(kind, datasets), metric, kind), stored=found)


def as_results(records: Sequence[OpenRecord], metric: str | None = None, kind: str = DEFAULTS) -> Results:
    """Return `records` as the results of one study."""
    if not records:
        raise UserError(f"there are no reference results of the kind {kind}; expected one of {KINDS}.")
    # Reading changes the names of datasets in place.
    whole = [(Path(), STUDY, {key: record[key] for key in record if key != "kinds"}) for record in records]
    return results_of(Gathered([], whole, [], {}, []), metric)


def tasks(records: Sequence[OpenRecord]) -> Iterator[tuple[str, list[OpenRecord]]]:
    """Yield the records of each dataset."""
    for dataset in sorted({record["config"]["dataset"] for record in records}):
        yield dataset, [record for record in records if record["config"]["dataset"] == dataset]
