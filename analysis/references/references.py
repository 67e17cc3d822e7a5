"""The reference results: of each method and graph, the packaged results of the newest code.

They are a view of the [archives](archives.py). `load_references` returns them in the form in which a report
reads the folders of studies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from analysis.data.reading import Gathered, results_of
from analysis.data.results import Results
from analysis.references.archives import FOLDER, SUFFIX, Archive, LastSession, read_archive
from hagmeta.common.errors import UserError, choose
from hagmeta.common.records.records import OpenRecord, RunKey

TUNED, DEFAULTS = "tuned", "defaults"
KINDS = (DEFAULTS, TUNED)
STUDY = "references"  # the name of their study in tables


@dataclass(frozen=True, eq=False)
class References:
    """Archives whose results are references, the newest code last."""

    archives: Sequence[Archive]

    @cached_property
    def by_kind(self) -> Mapping[str, Sequence[tuple[Archive, OpenRecord]]]:
        """Return the records of each kind, with their archives."""
        found: dict[str, dict[tuple[str, str], list[tuple[Archive, OpenRecord]]]] = {}
        for archive in self.archives:
            own: dict[tuple[str, str], list[tuple[Archive, OpenRecord]]] = {}
            for record in archive.records:
                config = record["config"]
                own.setdefault((config["dataset"], config["method"]), []).append((archive, record))
            for kind in archive.header["kinds"]:
                found.setdefault(kind, {}).update(own)
        return {
            kind: [pair for key in sorted(methods) for pair in methods[key]]
            for kind, methods in found.items()
        }

    def of(self, kind: str, datasets: Sequence[str] | None = None) -> list[OpenRecord]:
        """Return the records of a kind, on some datasets or on all."""
        choose("kind of references", kind, KINDS)
        return [
            record
            for _, record in self.by_kind.get(kind, ())
            if datasets is None or record["config"]["dataset"] in datasets
        ]

    @cached_property
    def records(self) -> list[OpenRecord]:
        """Return the records of all kinds; those of several kinds once."""
        both = [pair for pairs in self.by_kind.values() for pair in pairs]
        return list({(r["config_hash"], r["seed"]): r for _, r in both}.values())

    @property
    def searches(self) -> list[str]:
        """Return how the tuned configurations were chosen."""
        used = {id(archive) for archive, _ in self.by_kind.get(TUNED, ())}
        told = [each.header["search"] for each in self.archives if id(each) in used]
        return list(dict.fromkeys(filter(None, told)))

    @property
    def commands(self) -> list[str]:
        """Return the commands that made the results."""
        return list(dict.fromkeys(line for each in self.archives for line in each.header["commands"]))

    @cached_property
    def _orders(self) -> Mapping[tuple[str, int], tuple[Mapping[str, Any], list[int]]]:
        return {(r["config"]["dataset"], r["seed"]): (r["config"], r["classes_met"]) for r in self.records}

    def answers(self, dataset: str, key: RunKey) -> dict[str, np.ndarray] | None:
        """Return queries, predictions and true classes of a run at the last session, or None."""
        for archive in reversed(self.archives):
            last = self._last(archive, dataset, key[1])
            if last is not None and key[0] in last.hashes:
                row = last.predicted[last.hashes.index(key[0])]
                return {
                    "query": last.query,
                    "true": last.true.astype(int),
                    "predicted": row.astype(int),
                }
        return None

    def _last(self, archive: Archive, dataset: str, seed: int) -> LastSession | None:
        key = archive.name, dataset, seed
        if key not in self._read:
            self._read[key] = archive.predictions(dataset, seed)
        return self._read[key]

    @cached_property
    def _read(self) -> dict[tuple[str, str, int], LastSession | None]:
        return {}  # the predictions of a seed hold those of all methods

    def known(self, dataset: str, seed: int) -> frozenset[int]:
        """Return the classes that are known at session 0."""
        config, met = self._orders[dataset, seed]
        return frozenset(met[: len(met) - config["sessions"] * config["n_way"]])


@lru_cache(maxsize=2)
def read_references(folder: Path = FOLDER) -> References:
    """Return the references among the archives in a folder.

    Raises:
        UserError: A file is damaged, or of another format.
    """
    archives = [read_archive(path) for path in folder.glob(f"*{SUFFIX}")]
    return References(
        sorted(
            (each for each in archives if each.header["kinds"]),
            key=lambda each: (each.header["code"], each.name),
        )
    )


def load_references(
    kind: str = DEFAULTS,
    metric: str | None = None,
    *,
    datasets: Sequence[str] | None = None,
    folder: Path = FOLDER,
) -> Results:
    """Return the reference results as tables that all functions of a report accept.

    Args:
        kind: `tuned` for the configurations that searches chose, `defaults` for the defaults of methods.
        metric: The score of headlines and tests; macro accuracy by default.
        datasets: The graphs; all by default.
        folder: The archives.

    Raises:
        UserError: A file cannot be read, or there are no such results.
    """
    found = read_references(folder)
    return replace(as_results(found.of(kind, datasets), metric, kind), stored=found)


def as_results(records: Sequence[OpenRecord], metric: str | None = None, kind: str = DEFAULTS) -> Results:
    """Return `records` as the results of one study."""
    if not records:
        raise UserError(f"there are no reference results of the kind {kind}; expected one of {KINDS}.")
    # Reading changes the names of datasets in place.
    return results_of(Gathered([], [(Path(), STUDY, {**record}) for record in records], [], {}, []), metric)


def tasks(records: Sequence[OpenRecord]) -> Iterator[tuple[str, list[OpenRecord]]]:
    """Yield the records of each dataset."""
    for dataset in sorted({record["config"]["dataset"] for record in records}):
        yield dataset, [record for record in records if record["config"]["dataset"] == dataset]
