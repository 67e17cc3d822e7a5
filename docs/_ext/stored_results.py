"""Render tables and values of stored results: `<!-- generate: results ARCHIVE TABLE [KEY=VALUE ...] -->`.

ARCHIVE is an archive, or `references-defaults` or `references-tuned`; `A+B` are two archives, and `A@x,y` are
graphs x and y of one, whose comparisons are tested without those of other graphs. The conditions
restrict configurations; `graphs=a,b` restricts graphs, `methods=a,b` methods (without `@...`), and
`revision=N` our method.
A value in a text is {value}`ARCHIVE VALUE [WORD]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats

from analysis.comparisons import Analysis
from analysis.data.results import Panel
from analysis.references.archives import archive_of
from analysis.references.planned import planned_verdicts
from analysis.references.references import KINDS, as_results, read_references
from analysis.statistics.estimates import estimate
from analysis.statistics.inference import BETTER, INCONCLUSIVE, WORSE, holm
from analysis.statistics.over_datasets import OverDatasets
from analysis.words import listed
from hagmeta.common.records.records import OpenRecord
from hagmeta.common.settings.left_out import LEFT_OUT_AT

OURS = "posterior-means"
GRAPHS = {  # columns of tables, in this order
    **{"bible": "Bible", "boost": "Boost", "kanji": "Kanji", "debian": "Debian", "metamath": "Metamath"},
    **{"wordnet": "WordNet", "foldoc": "FOLDOC", "coauthor-cs": "CS", "amazon-computers": "Computers"},
    **{"cora-ml": "Cora-ML", "email-rale.npz": "E-mail"},
    **{"wikispeedia.npz": "Wikispeedia", "corafull.npz": "CoraFull", "cornell5.npz": "Cornell5"},
    **{"rfc.npz": "RFC", "debian-small.npz": "Debian, 4,000 nodes"},
    **{"metamath-small.npz": "Metamath, 5,000 nodes", "wordnet-small.npz": "WordNet, 5,000 nodes"},
    **{"foldoc-rewired.npz": "FOLDOC, rewired", "cora-ml-rewired.npz": "Cora-ML, rewired"},
    **{"amazon-computers-rewired.npz": "Computers, rewired", "debian-uneven.npz": "Debian, uneven"},
    **{"foldoc-uneven.npz": "FOLDOC, uneven", "metamath-uneven.npz": "Metamath, uneven"},
    **{"wordnet-uneven.npz": "WordNet, uneven"},
}
MEASURES = {"macro": "macro accuracy", "plain": "plain accuracy", "average": "macro, average over sessions"}
TASK = ("dataset", "classes", "drop_small", "n_way", "k_shot")  # of the graph, and in no label
VALUE = re.compile(r"\{value\}`(?P<argument>[^`]+)`")
PLANNED = "planned-"  # archives of the planned comparison
OPPOSITE = {BETTER: WORSE, WORSE: BETTER}
SEVERAL = 0.05  # error rate of the tests over graphs
BY_CLASS = {"base": "base_accuracy", "new": "novel_accuracy"}  # plain accuracy of known and of new classes
CONTROLS = {
    "unlabelled_nodes=training": "inductive: nothing is learnt from queries",
    "rehearsal=none": "no rehearsal",
    "mislabelled=1": "one of five labels is wrong",
}


@dataclass(frozen=True)
class Runs:
    """Some runs of an archive.

    Attributes:
        name: The archive.
        rows: One row per run: graph, method, label, oracle, seed and measures in percent.
        records: The records of these runs.
        everything: The records of the whole archive, which a report would test together.
    """

    name: str
    rows: pd.DataFrame
    records: Sequence[OpenRecord]
    everything: Sequence[OpenRecord]

    @property
    def graphs(self) -> list[str]:
        return [name for name in GRAPHS.values() if name in set(self.rows["graph"])]

    @property
    def ours(self) -> str:
        return str(self.rows.loc[self.rows["method"] == OURS, "label"].iloc[0])

    def scores(self, graph: str, measure: str = "macro") -> pd.DataFrame:
        """Return (seeds, labels) without oracles."""
        own = self.rows[(self.rows["graph"] == graph) & ~self.rows["oracle"]]
        return own.pivot(index="seed", columns="label", values=measure)

    def means(self, measure: str = "macro", oracles: bool = False) -> pd.DataFrame:
        """Return (labels, graphs)."""
        own = self.rows if oracles else self.rows[~self.rows["oracle"]]
        return own.pivot_table(measure, "label", "graph")[self.graphs]

    @property
    def over_graphs(self) -> OverDatasets:
        return OverDatasets({graph: self.scores(graph) for graph in self.graphs}, "macro", self.rows)


@cache
def records_of(name: str) -> tuple[OpenRecord, ...]:
    """Return the records of archives, or of a kind of references."""
    if "+" in name:
        return tuple(record for each in name.split("+") for record in records_of(each))
    if "@" in name:
        whole, graphs = name.split("@")
        return tuple(record for record in records_of(whole) if _meets(record, "graphs", graphs))
    kind = name.removeprefix("references-")
    return tuple(read_references().of(kind) if kind in KINDS else archive_of(name).records)


def runs_of(name: str, conditions: Sequence[str] = ()) -> Runs:
    """Return the runs that meet all conditions."""
    wanted = dict(condition.split("=", 1) for condition in conditions)
    everything = records_of(name)
    kept = [record for record in everything if all(_meets(record, *each) for each in wanted.items())]
    if not kept:
        raise ValueError(f"no run of {name} meets {' '.join(conditions)}")
    labels = _labels(kept)
    rows = [
        {
            **{"graph": _graph(record), "method": record["config"]["method"], "seed": record["seed"]},
            **{"label": labels[record["config_hash"]], "oracle": record["oracle"]},
            "macro": 100 * record["macro_accuracy"][-1],
            "plain": 100 * record["accuracy"][-1],
            "average": 100 * float(np.mean(record["macro_accuracy"])),
            **{name: 100 * record[name][-1] for name in CALIBRATION if name in record},
            **{name: 100 * record[key][-1] for name, key in BY_CLASS.items()},
        }
        for record in kept
    ]
    return Runs(name, pd.DataFrame(rows), kept, everything)


def _meets(record: OpenRecord, key: str, values: str) -> bool:
    config = record["config"]
    if key == "graphs":
        return _graph(record) in values.split(",") or _file(config["dataset"]) in values.split(",")
    if key == "methods":
        return config["method"].partition("@")[0] in values.split(",")
    if key == "revision":
        return config["method"] != OURS or str(record["revisions"]["method"]) == values
    return str(config.get(key, LEFT_OUT_AT.get(key))) == values


def _file(dataset: str) -> str:
    return dataset.removeprefix("npz:")


def _graph(record: OpenRecord) -> str:
    return GRAPHS[_file(record["config"]["dataset"])]


def _labels(records: Sequence[OpenRecord]) -> dict[str, str]:
    """Return labels by configuration: the method, and settings if it has several on one graph."""
    first = {record["config_hash"]: record for record in records}
    several = {
        record["config"]["method"]
        for name, record in first.items()
        for other, each in first.items()
        if name < other
        and _graph(record) == _graph(each)
        and record["traits"]["title"] == each["traits"]["title"]
    }
    found = {}
    for name, record in first.items():
        config = record["config"]
        label = record["traits"]["title"]
        if config["method"] in several:
            given = [key for key in record["given"] if key not in TASK]
            label = ", ".join([label, *(f"{key.replace('_', ' ')} {config[key]}" for key in given)])
        found[name] = f"**{label}** (ours)" if config["method"] == OURS else label
    return found


def means(runs: Runs) -> str:
    """Return macro accuracy by method and graph, sorted by mean rank; oracles have no rank."""
    table, best = runs.means(oracles=True), runs.means().max()
    ranks = (
        runs.over_graphs.ranks.mean()
        if len(runs.graphs) > 1
        else runs.means().rank(ascending=False).iloc[:, 0]
    )
    order = [*ranks.sort_values().index, *(label for label in table.index if label not in ranks.index)]
    rows = [
        [label, f"{ranks[label]:.1f}" if label in ranks.index else "-", *_cells(table, label, best)]
        for label in order
    ]
    return _table(["", "mean rank", *runs.graphs], rows, 1)


def main_table(runs: Runs) -> str:
    """Return the mean over graphs and macro accuracy of all methods with defaults, and of tuned rivals."""
    tuned = runs_of("references-tuned").means()
    tuned = tuned.drop(index=runs.ours).rename(index=lambda label: f"{label}, tuned")
    table = pd.concat([runs.means(oracles=True), tuned])
    oracles = set(runs.rows.loc[runs.rows["oracle"], "label"])
    best = table.drop(index=list(oracles)).max()
    order = table.mean(axis=1).sort_values(ascending=False).index
    rows = [
        [
            f"{label} (oracle)" if label in oracles else label,
            f"{table.loc[label].mean():.1f}",
            *_cells(table, label, best),
        ]
        for label in order
    ]
    return _table(["", "mean", *runs.graphs], rows, 1)


def later(runs: Runs) -> str:
    """Return mean ranks, means and macro accuracy. Rows that lack a graph have no rank and no mean."""
    table = runs.means()
    whole = table.dropna()
    over = {"rank": whole.round(10).rank(ascending=False).mean(axis=1), "mean": whole.mean(axis=1)}
    numbers = pd.DataFrame(over, table.index)
    rows = [
        [label, *(_cell(value) for value in numbers.loc[label]), *_cells(table, label, table.max())]
        for label in table.mean(axis=1).sort_values(ascending=False).index
    ]
    return _table(["", "mean rank", "mean", *runs.graphs], rows, 1)


def _cells(table: pd.DataFrame, label: str, best: pd.Series) -> list[str]:
    """Return the cells of a row; the best of a column are bold."""
    values = table.loc[label]
    return [_cell(values[graph], bold=values[graph] == best[graph]) for graph in table]


def sides(runs: Runs) -> str:
    """Return plain accuracy at the last session: on all queries, on base classes and on new ones."""
    parts = [runs.means(measure) for measure in ("plain", *BY_CLASS)]
    order = parts[0].mean(axis=1).sort_values(ascending=False).index
    rows = [
        [
            label,
            *(
                "{:.1f} ({:.1f} / {:.1f})".format(*(part.loc[label, g] for part in parts))
                for g in runs.graphs
            ),
        ]
        for label in order
    ]
    return _table(["plain (base / new)", *runs.graphs], rows, 1)


def _cell(value: float, *, bold: bool = False) -> str:
    if np.isnan(value):
        return "-"
    return f"**{value:.1f}**" if bold else f"{value:.1f}"


def leads(runs: Runs) -> str:
    """Return our method minus the most accurate other method, on each graph and by each measure."""
    rows = []
    for graph in runs.graphs:
        cells = [graph]
        for measure in MEASURES:
            label, found = lead(runs, graph, measure)
            cells += [_difference(found), label.replace("-", "\N{NON-BREAKING HYPHEN}")]
        rows.append(cells)
    heads = [head for words in MEASURES.values() for head in (words, "best rival")]
    return _table(["", *heads], rows, 1, left=(2, 4, 6))


def lead(runs: Runs, graph: str, measure: str = "macro") -> tuple[str, pd.Series]:
    """Return the best rival and our method minus it, by seed."""
    scores = runs.scores(graph, measure)
    rival = str(scores.drop(columns=runs.ours).mean().idxmax())
    return rival, scores[runs.ours] - scores[rival]


def _difference(values: pd.Series) -> str:
    found = estimate(values)
    return f"{_signed(found.mean)} ± {found.half:.1f}"


def _signed(value: float) -> str:
    return f"{value:+.1f}" if f"{value:+.1f}" not in ("+0.0", "-0.0") else "0.0"


def verdicts(runs: Runs) -> str:
    """Return which rivals are worse than our method, better, or neither, on each graph."""
    rows = []
    for graph in runs.graphs:
        found = _verdicts(runs, graph)
        names = {
            verdict: [label for label, each in found.items() if each == verdict]
            for verdict in (BETTER, WORSE, "")
        }
        rows.append([graph, str(len(names[BETTER])), _some(names[""]), _some(names[WORSE])])
    heads = ["", "rivals significantly worse", "inconclusive or equivalent", "rivals significantly better"]
    return _table(heads, rows, 1, left=(2, 3))


def _verdicts(runs: Runs, graph: str) -> dict[str, str]:
    """Return the verdict on our method against each rival: better, worse, or neither."""
    asked = _analysis(runs.name)
    hashes = {r["config_hash"] for r in runs.records if _graph(r) == graph}
    (panel,) = (each for each in asked.panels if hashes & set(each.runs["config_hash"]))
    names = panel.runs.drop_duplicates("label").set_index("label")
    (own,) = (
        label for label in names.index[names["method"] == OURS] if names.loc[label, "config_hash"] in hashes
    )
    titles = _labels(runs.records)
    found = {}
    for label in panel.labels:
        if label == own or names.loc[label, "oracle"] or names.loc[label, "config_hash"] not in hashes:
            continue
        verdict = _verdict(runs.name, panel, own, label)
        found[titles[names.loc[label, "config_hash"]]] = verdict if verdict in OPPOSITE else ""
    return found


def _verdict(name: str, panel: Panel, own: str, other: str) -> str:
    """Return the verdict on `own` minus `other`, in the planned comparison by the tests that were planned."""
    if name.startswith(PLANNED):
        found = _planned(name)
        if (panel.title, own, other) in found:
            return found[panel.title, own, other]
        return OPPOSITE.get(found[panel.title, other, own], "")
    difference = _analysis(name).comparisons.pair(panel, own, other)
    return difference.verdict if difference is not None else ""


def controls(runs: Runs) -> str:
    """Return our method against each rival under each control: mean difference, and verdicts per graph."""
    rows = []
    for condition, words in CONTROLS.items():
        some = runs_of(runs.name, [condition])
        means, ranks = some.means(), some.over_graphs.ranks.mean()
        found = pd.DataFrame({graph: _verdicts(some, graph) for graph in some.graphs})
        rows.append([words, some.ours, f"{ranks[some.ours]:.1f}", "", "", "", ""])
        for label in ranks.drop(some.ours).sort_values().index:
            difference = (means.loc[some.ours] - means.loc[label]).mean()
            counts = [str(int((found.loc[label] == verdict).sum())) for verdict in (BETTER, "", WORSE)]
            rows.append(["", label, f"{ranks[label]:.1f}", _signed(difference), *counts])
    verdicts = f"ours {BETTER}", INCONCLUSIVE, f"ours {WORSE}"
    heads = ["control", "method", "mean rank", "ours minus it", *verdicts]
    return _table(heads, rows, 2)


def _some(names: Sequence[str]) -> str:
    if not names:
        return "none"
    return listed(sorted(names)) if len(names) < 5 else str(len(names))


@cache
def _analysis(name: str) -> Analysis:
    return Analysis(as_results(records_of(name)))


@cache
def _planned(name: str) -> dict[Any, str]:
    every = _analysis(name).differences.values()
    return planned_verdicts({key: values for family in every for key, values in family.items()})


def over_graphs(runs: Runs) -> str:
    """Return Wilcoxon's test over graphs of each rival, with Holm's correction."""
    means = runs.means()
    differences = {
        label: means.loc[runs.ours] - means.loc[label] for label in means.index if label != runs.ours
    }
    tests = {label: scipy.stats.wilcoxon(each, method="exact").pvalue for label, each in differences.items()}
    corrected = dict(zip(tests, holm(list(tests.values())), strict=True))
    rows = []
    for label, each in sorted(differences.items(), key=lambda pair: pair[1].mean()):
        decided = corrected[label] <= SEVERAL
        verdict = (WORSE if each.mean() > 0 else BETTER) if decided else INCONCLUSIVE
        numbers = [f"{each.mean():+.1f}", str(int((each > 0).sum())), _p(tests[label]), _p(corrected[label])]
        rows.append([label, *numbers, verdict])
    heads = ["rival", "ours minus it", "graphs where ours is higher", "p", "corrected p", "the rival is"]
    return _table(heads, rows, 1, left=(5,))


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.0005 else "< 0.001"


CALIBRATION = ("tempered_calibration_error", "calibration_error")


def calibration(runs: Runs) -> str:
    """Return the calibration error at the last session after temperature scaling; lower is better."""
    after, before = (runs.means(name) for name in CALIBRATION)
    order = after.mean(axis=1).sort_values().index
    rows = [
        [
            label,
            *(_cell(each) for each in (after.loc[label].mean(), *after.loc[label], before.loc[label].mean())),
        ]
        for label in order
    ]
    return _table(["", "mean", *runs.graphs, "before"], rows, 1)


def archives() -> str:
    """Return the archives: runs, the sum of their hours, content, and the spaces that make them."""
    from analysis.references.archives import names

    rows = []
    for name in names():
        found = archive_of(name)
        spaces = ", ".join(f"`{line.partition('--space ')[2]}`" for line in found.header["commands"])
        seconds = sum(value for record in found.records for value in record["seconds"].values() if value)
        numbers = [f"{len(found.records):,}", f"{seconds / 3600:.1f}"]
        rows.append([f"`{name}`", *numbers, found.header["title"], spaces])
    return _table(["archive", "runs", "hours", "content", "SPACE"], rows, 1, left=(3, 4))


TABLES: Mapping[str, Callable[[Runs], str]] = {
    **{"means": means, "leads": leads, "verdicts": verdicts, "over-graphs": over_graphs},
    **{"main": main_table, "sides": sides, "controls": controls, "calibration": calibration},
    **{"later": later},
}


def results(argument: str) -> str:
    """Return a table of stored results and a line that names their source."""
    name, table, *conditions = argument.split()
    runs = runs_of(name, conditions)
    return f"{TABLES[table](runs)}\n\n{source(runs)}"


def source(runs: Runs) -> str:
    """Return the revision of our method, the archive, the commits, the seeds and the device."""
    own = [record for record in runs.records if record["config"]["method"] == OURS]
    revisions = sorted({record["revisions"]["method"] for record in own})
    commits = sorted({(r["environment"]["commit"] or "")[:7] for r in runs.records})
    devices = sorted({str(r["environment"]["device"]) for r in runs.records})
    seeds = sorted({record["seed"] for record in runs.records})
    revision = (
        f"posterior means revision {listed(list(map(str, revisions)))}" if own else "rivals only, no revision"
    )
    return (
        f"*Source: `{runs.name}`; {revision}; commit {listed(commits)}; {listed(devices)}; "
        f"seeds {seeds[0]} to {seeds[-1]}.*"
    )


def value(argument: str) -> str:
    """Return one number of stored results."""
    name, what, *words = argument.split()
    conditions = [word for word in words if "=" in word]
    runs, words = runs_of(name, conditions), [word for word in words if "=" not in word]
    return VALUES[what](runs, *words)


def _points(runs: Runs, graph: str, measure: str = "macro") -> str:
    return f"{abs(lead(runs, GRAPHS[graph], measure)[1].mean()):.1f}"


def _highest(runs: Runs, measure: str = "macro") -> str:
    return str(int((runs.means(measure).idxmax() == runs.ours).sum()))


def _ahead_of_all(runs: Runs) -> str:
    found = [_verdicts(runs, graph).values() for graph in runs.graphs]
    return str(sum(set(each) == {BETTER} for each in found))


def _changed(runs: Runs, which: str) -> str:
    revision = runs.records[0]["revisions"]["method"]
    base = runs_of(f"{OURS}-{revision}").means().loc[runs.ours, runs.graphs]
    found = base - runs.means().loc[runs.ours]
    return f"{found.mean() if which == 'mean' else found.max():.1f}"


def _seconds(runs: Runs) -> str:
    """Return the mean time of a run; runs of one pack share its time, and packs share a GPU."""
    times = [sum(value for value in record["seconds"].values() if value) for record in runs.records]
    return f"{np.mean(times):.1f}"


VALUES: Mapping[str, Callable[..., str]] = {
    "seconds": _seconds,
    "points": _points,
    "highest": _highest,
    "ahead-of-all": _ahead_of_all,
    "loses": _changed,
    "graphs": lambda runs: str(len(runs.graphs)),
    "methods": lambda runs: str(runs.rows["method"].nunique()),
    "better-over-graphs": lambda runs: str(over_graphs(runs).count(f"{WORSE} |")),
    "not-better-over-graphs": lambda runs: str(len(runs.means()) - 1 - over_graphs(runs).count(f"{WORSE} |")),
    "friedman": lambda runs: f"{_p(runs.over_graphs.friedman)}",
    "critical": lambda runs: f"{runs.over_graphs.critical_difference:.1f}",
    "tested": lambda runs: f"{_analysis(runs.name).comparisons.tested:,}",
    "asymmetry": lambda runs: f"{_analysis(runs.name).comparisons.asymmetry:.2f}",
}


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], right: int, left: Sequence[int] = ()) -> str:
    """Return a Markdown table whose columns from `right` on are aligned right, but for those in `left`."""
    marks = ["--:" if number >= right and number not in left else "---" for number in range(len(head))]
    lines = [list(head), marks, *map(list, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
