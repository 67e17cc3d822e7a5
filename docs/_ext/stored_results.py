"""Render tables and values of stored results: `<!-- generate: results ARCHIVE TABLE [KEY=VALUE ...] -->`.

ARCHIVE is an archive, or `references-defaults` or `references-tuned`. The conditions restrict configurations;
`graphs=a,b` restricts graphs, and `methods=a,b` methods. A value in a text is {value}`ARCHIVE VALUE [WORD]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
import scipy.stats

from analysis.comparisons import Analysis
from analysis.references.archives import archive_of
from analysis.references.references import KINDS, as_results, read_references
from analysis.statistics.estimates import estimate
from analysis.statistics.inference import AHEAD, BEHIND, holm
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
}
MEASURES = {"macro": "macro accuracy", "plain": "plain accuracy", "average": "macro, average over sessions"}
TASK = ("dataset", "classes", "drop_small", "n_way", "k_shot")  # of the graph, and in no label
VALUE = re.compile(r"\{value\}`(?P<argument>[^`]+)`")
SEVERAL = 0.05  # error rate of the tests over graphs


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
    """Return the records of an archive or of a kind of references."""
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
        }
        for record in kept
    ]
    return Runs(name, pd.DataFrame(rows), kept, everything)


def _meets(record: OpenRecord, key: str, values: str) -> bool:
    config = record["config"]
    if key == "graphs":
        return _graph(record) in values.split(",") or _file(config["dataset"]) in values.split(",")
    if key == "methods":
        return config["method"] in values.split(",")
    return str(config.get(key, LEFT_OUT_AT.get(key))) == values


def _file(dataset: str) -> str:
    return dataset.removeprefix("npz:")


def _graph(record: OpenRecord) -> str:
    return GRAPHS[_file(record["config"]["dataset"])]


def _labels(records: Sequence[OpenRecord]) -> dict[str, str]:
    """Return labels by configuration: the method, and settings where it has several configurations."""
    first = {record["config_hash"]: record for record in records}
    several = {
        (_graph(record), record["config"]["method"])
        for name, record in first.items()
        for other, each in first.items()
        if name < other and _graph(record) == _graph(each) and record["traits"] == each["traits"]
    }
    found = {}
    for name, record in first.items():
        config = record["config"]
        label = record["traits"]["title"]
        if (_graph(record), config["method"]) in several:
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
        [
            label,
            f"{ranks[label]:.1f}" if label in ranks.index else "-",
            *(
                _cell(table.loc[label, graph], bold=table.loc[label, graph] == best[graph])
                for graph in runs.graphs
            ),
        ]
        for label in order
    ]
    return _table(["", "mean rank", *runs.graphs], rows, 1)


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
    """Return which rivals are behind our method, ahead of it, or neither, on each graph."""
    asked = _analysis(runs.name)
    rows = []
    for graph in runs.graphs:
        hashes = {r["config_hash"] for r in runs.records if _graph(r) == graph}
        (panel,) = (each for each in asked.panels if hashes & set(each.runs["config_hash"]))
        names = panel.runs.drop_duplicates("label").set_index("label")
        (own,) = names.index[names["method"] == OURS]
        titles = dict(_labels(runs.records))
        found: dict[str, list[str]] = {AHEAD: [], BEHIND: [], "": []}
        for label in panel.labels:
            if label == own or names.loc[label, "oracle"] or names.loc[label, "config_hash"] not in hashes:
                continue
            difference = asked.comparisons.pair(panel, own, label)
            verdict = difference.verdict if difference is not None else ""
            found[verdict if verdict in found else ""].append(titles[names.loc[label, "config_hash"]])
        rows.append([graph, str(len(found[AHEAD])), _some(found[""]), _some(found[BEHIND])])
    return _table(["", "rivals behind ours", "neither", "rivals ahead of ours"], rows, 1, left=(2, 3))


def _some(names: Sequence[str]) -> str:
    if not names:
        return "none"
    return listed(sorted(names)) if len(names) < 5 else str(len(names))


@cache
def _analysis(name: str) -> Analysis:
    return Analysis(as_results(records_of(name)))


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
        verdict = ("behind" if each.mean() > 0 else "ahead") if decided else "not separated"
        numbers = [f"{each.mean():+.1f}", str(int((each > 0).sum())), _p(tests[label]), _p(corrected[label])]
        rows.append([label, *numbers, verdict])
    heads = ["rival", "our method minus it", "graphs ahead", "p", "corrected p", "verdict"]
    return _table(heads, rows, 1, left=(5,))


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.0005 else "< 0.001"


def changes(runs: Runs) -> str:
    """Return what a setting changes for our method with its defaults, by graph."""
    base = runs_of(f"{OURS}-11", [f"methods={OURS}"])
    rows = []
    for graph in runs.graphs:
        cells = [graph]
        for measure in ("macro", "plain"):
            before, after = (each.scores(graph, measure).iloc[:, 0] for each in (base, runs))
            cells += [_cell(before.mean()), _cell(after.mean()), _difference(after - before)]
        rows.append(cells)
    heads = ["macro: default", "with it", "change", "plain: default", "with it", "change"]
    return _table(["", *heads], rows, 1)


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
    """Return the archives: content, code, size and commands."""
    from analysis.references.archives import names

    rows = []
    for name in names():
        found = archive_of(name)
        commands = "; ".join(f"`{line}`" for line in found.header["commands"])
        size = f"{found.path.stat().st_size / 1e6:.1f} MB"
        rows.append([f"`{name}`", found.header["title"], f"{len(found.records):,}", size, commands])
    return _table(["archive", "content", "runs", "size", "command"], rows, 2, left=(4,))


TABLES: Mapping[str, Callable[[Runs], str]] = {
    **{"means": means, "leads": leads, "verdicts": verdicts, "over-graphs": over_graphs},
    **{"changes": changes, "calibration": calibration},
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


def _lead(runs: Runs, graph: str, measure: str = "macro") -> str:
    return _difference(lead(runs, GRAPHS[graph], measure)[1])


def _points(runs: Runs, graph: str, measure: str = "macro") -> str:
    return f"{abs(lead(runs, GRAPHS[graph], measure)[1].mean()):.1f}"


def _highest(runs: Runs, measure: str = "macro") -> str:
    return str(int((runs.means(measure).idxmax() == runs.ours).sum()))


def _ahead_of_all(runs: Runs) -> str:
    asked = runs_of(runs.name)
    lines = verdicts(asked).splitlines()[2:]
    return str(sum(line.split(" | ")[2:] == ["none", "none |"] for line in lines))


def _changed(runs: Runs, which: str) -> str:
    base = runs_of(f"{OURS}-11", [f"methods={OURS}"]).means().loc[runs.ours, runs.graphs]
    found = base - runs.means().loc[runs.ours]
    return f"{found.mean() if which == 'mean' else found.max():.1f}"


VALUES: Mapping[str, Callable[..., str]] = {
    "lead": _lead,
    "points": _points,
    "highest": _highest,
    "ahead-of-all": _ahead_of_all,
    "loses": _changed,
    "graphs": lambda runs: str(len(runs.graphs)),
    "mean": lambda runs, graph: f"{runs.means(oracles=True)[GRAPHS[graph]].iloc[0]:.1f}",
    "rank": lambda runs: f"{runs.over_graphs.ranks.mean()[runs.ours]:.1f}",
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
