"""Place results among the reference results: ranks, paired differences and verdicts on each graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.comparisons import Analysis
from analysis.data.labels import compares_methods, named_by_method
from analysis.data.reading import Gathered, gather, results_of
from analysis.data.results import Panel, Results
from analysis.references.archives import CURVES
from analysis.references.comparable import Refusal, matching, refusal_of, why_not
from analysis.references.references import DEFAULTS, References, as_results, read_references
from analysis.statistics.estimates import adjusted_means, ranks_of
from analysis.statistics.inference import BETTER, MARGIN, Difference
from analysis.tables.cost import charged
from hagmeta.common.errors import UserError
from hagmeta.common.records.records import OpenRecord

YOURS = " (yours)"  # after the name of a method that the references also have


@dataclass(frozen=True, eq=False)
class Standing:
    """One of the user's configurations on one graph."""

    label: str
    panel: Panel
    tests: Mapping[str, Difference]  # the configuration minus each reference, oracles included
    mine: tuple[str, ...]  # all configurations of the user

    @property
    def dataset(self) -> str:
        return str(self.panel.runs["dataset"].iloc[0])

    @cached_property
    def rivals(self) -> list[str]:
        """Return the references without oracles, the highest mean first."""
        means = self.means
        names = [label for label in self.panel.rivals if label not in self.mine]
        return sorted(names, key=lambda label: -means[label])

    @cached_property
    def means(self) -> pd.Series:
        """Return means at the last session, adjusted for missing seeds."""
        return adjusted_means(self.panel.by_seed("last"))

    @property
    def rank(self) -> int:
        """Return the rank among the references; ties share the better one."""
        return int(ranks_of(self.panel.by_seed("last")[[self.label, *self.rivals]])[self.label])

    @property
    def best(self) -> str:
        """Return the reference with the highest mean."""
        return self.rivals[0]

    @property
    def lead(self) -> Difference:
        """Return the difference from the best reference."""
        return self.tests[self.best]

    def with_verdict(self, verdict: str) -> list[str]:
        """Return the references to which the configuration has this verdict, the highest first."""
        return [label for label in self.rivals if self.tests[label].verdict == verdict]

    @property
    def better_than_all(self) -> bool:
        return len(self.with_verdict(BETTER)) == len(self.rivals)

    @cached_property
    def seconds(self) -> pd.Series:
        """Return the mean seconds per seed of each configuration."""
        return charged(self.panel.runs).groupby("label")["seconds"].mean()


@dataclass(frozen=True, eq=False)
class Placed:
    """Results among the references."""

    analysis: Analysis  # the user's runs first, then the references
    kind: str
    references: References
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the user's configurations."""
        return self.analysis.own

    @cached_property
    def standings(self) -> list[Standing]:
        """Return each configuration of the user on each graph."""
        tests = self.analysis.comparisons.reference
        return [
            Standing(label, panel, tests.of(panel.title, label), self.labels)
            for label in self.labels
            for panel in self.analysis.panels
            if label in panel.labels
        ]

    def of(self, label: str) -> list[Standing]:
        return [each for each in self.standings if each.label == label]


def place(
    folders: Sequence[Path],
    *,
    kind: str = DEFAULTS,
    metric: str | None = None,
    margin: float = MARGIN,
    references: References | None = None,
) -> Placed:
    """Return the results of `folders` among the references.

    Args:
        folders: Studies, or folders of studies.
        kind: Compare with `tuned` references or with `defaults`.
        metric: The score; macro accuracy by default.
        margin: Differences below it count as equivalent, as a share.
        references: The references; by default, the packaged ones.

    Raises:
        UserError: No configuration can be compared. The message says why, for each.
    """
    references = references or read_references()
    gathered = gather(folders)
    if not gathered.records:
        results_of(gathered)  # raises an error that counts failed and damaged runs
    kept, refusals = _comparable(gathered, references, kind)
    if not kept:
        reasons = " ".join(each.words for each in refusals)
        raise UserError(f"cannot compare with the references. {reasons}")
    own = _new_first(_with_names(results_of(replace(gathered, records=kept), metric)), references)
    hashes, seeds = set(own.runs["config_hash"]), own.runs.groupby("dataset")["seed"].agg(set)
    theirs = [
        record
        for record in references.of(kind, list(seeds.index))
        if record["config_hash"] not in hashes and record["seed"] in seeds[record["config"]["dataset"]]
    ]
    results, labels = _joined(own, as_results(theirs, own.metric, kind))
    return Placed(Analysis(results, margin=margin, own=labels), kind, references, refusals)


def _comparable(
    gathered: Gathered, references: References, kind: str
) -> tuple[list[tuple[Path, str, OpenRecord]], list[Refusal]]:
    """Return the records that can be compared, in the precision of the references, and the other ones."""
    by_config: dict[str, list[tuple[Path, str, OpenRecord]]] = {}
    for each in gathered.records:
        by_config.setdefault(each[-1]["config_hash"], []).append(each)
    everyone, kept, refusals = references.of(kind), [], []
    for found in by_config.values():
        records = [record for *_, record in found]
        reasons = why_not(records, references, kind)
        if reasons:
            refusals.append(refusal_of(records, reasons))
            continue
        dataset = matching(records[0], everyone)
        known = {record["seed"] for record in everyone if record["config"]["dataset"] == dataset}
        kept += [(path, study, _as_stored(r, dataset)) for path, study, r in found if r["seed"] in known]
    return kept, refusals


def _as_stored(record: OpenRecord, dataset: str | None) -> OpenRecord:
    """Return a record with the dataset's name and the precision of the references, so that ties stay ties."""
    curves = {name: _single(record[name]) for name in CURVES if name in record}
    return record | curves | {"config": record["config"] | {"dataset": dataset}}


def _single(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else float(np.float32(value)) for value in values]


def _with_names(own: Results) -> Results:
    """Return results with the titles of methods as labels, if each method has one configuration per graph."""
    configs = own.runs.drop_duplicates("config_hash")
    if configs.duplicated(["dataset", "method"]).any() or compares_methods(configs, ["dataset"]):
        return own
    labels = dict(zip(configs["config_hash"], named_by_method(configs), strict=True))
    return replace(own, runs=own.runs.assign(label=own.runs["config_hash"].map(labels)))


def _new_first(own: Results, references: References) -> Results:
    """Return results with the methods first that the references do not have."""
    known = {record["config"]["method"] for record in references.records}
    runs = own.runs.sort_values("method", key=lambda column: column.isin(known), kind="stable")
    return replace(own, runs=runs)


def _joined(own: Results, theirs: Results) -> tuple[Results, tuple[str, ...]]:
    """Return the runs of both, with `own` first and no label in common, and the labels of `own`.

    Settings of the task are known to be equal, so the runs of a graph take those of the references.
    """
    taken = set(theirs.runs["label"])
    mine = own.runs.assign(
        label=own.runs["label"].map(lambda label: f"{label}{YOURS}" if label in taken else label)
    )
    for key in theirs.task:
        value = theirs.runs.groupby("dataset")[key].first()
        mine[key] = mine["dataset"].map(value)
    apart = 1 + int(mine["run"].max())
    runs = pd.concat([mine, theirs.runs.assign(run=theirs.runs["run"] + apart)], ignore_index=True)
    sessions = [own.sessions, theirs.sessions.assign(run=theirs.sessions["run"] + apart)]
    joined = pd.concat(sessions, ignore_index=True)
    joined["label"] = joined["run"].map(runs.set_index("run")["label"])
    keys = [*theirs.keys, *(key for key in own.keys if key not in theirs.keys and key not in own.task)]
    found = replace(own, runs=runs, sessions=joined, keys=keys, scopes=theirs.scopes)
    return found, tuple(dict.fromkeys(mine["label"]))
