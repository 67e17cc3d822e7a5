"""Write the page to explore: one HTML file with all numbers of the tables, to filter, hover and click.

Python computes every number with the functions of the tables. The page only selects and draws them. Numbers
in percent travel as whole tenths, rounded as the tables round them: 572 is 57.2.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup

from analysis.comparisons import Analysis
from analysis.data import by_class
from analysis.data.by_class import Answers, ClassScore
from analysis.data.labels import is_absent, readable, varied_settings
from analysis.data.reading import mean_of
from analysis.data.results import PER_RUN, SCORED_BY, Panel, Results
from analysis.designs.n_and_k import PROPOSED
from analysis.figures.style import LOOKS
from analysis.page.page import asset, environment, policy
from analysis.statistics.estimates import Estimate, estimates
from analysis.tables.cells import by_rank, notes_of, seed_count
from analysis.tables.cost import ABOUT as ABOUT_COST
from analysis.tables.cost import charged, front
from analysis.tables.panels import plain_texts
from analysis.words import verdict
from hagmeta.common.records.differences import sort_key
from hagmeta.common.records.metrics import BUILT_IN, DIAGNOSTICS

NAME = "explorer.html"
CHOOSERS = ("dataset", "protocol", "n_way", "k_shot")
MOST_SHOWN = 10  # configurations that are shown at first
MOST_PROPOSED = 3  # of these: proposed ones that are not among the best
FEWEST_SHOWN = 5  # configurations of each panel, if it has them
MOST_DETAILED = 60  # configurations of a panel with scores by class
AVERAGE = "average"
SHIFT = 3  # how far markers and dashes move each time that colours repeat
# The colours of figures on a dark page, in the order of `LOOKS`.
DARK = ["#4aa8e0", "#f0b030", "#f0f0f0", "#dd92bb", "#2fc79a", "#8fd0f5", "#ff8a3d", "#a8a8a8"]
DARK += ["#c98f3c", "#b77fd0", "#b3d12e", "#35d0d0", "#7f9bf0", "#f0607f", "#cdbcf0", "#86b872"]


@dataclass(frozen=True)
class _Metric:
    """A metric that a reader can choose."""

    title: str
    column: str
    by_session: bool
    higher_is_better: bool = True
    percent: bool = True

    @property
    def told(self) -> dict[str, Any]:
        """Return what the page needs to know."""
        return {
            "title": self.title,
            "sessions": self.by_session,
            "higher": self.higher_is_better,
            "percent": self.percent,
        }


def render(analysis: Analysis, *, title: str, command: str, report: str) -> str:
    """Return the whole page as HTML; `report` is the address of the report that it belongs to."""
    numbers = json.dumps(data(analysis), separators=(",", ":"), allow_nan=False)
    style = Markup(asset("style.css") + _look_style() + asset("explorer.css"))
    script = asset("explorer.js")
    return (
        environment()
        .get_template("explorer.html.jinja")
        .render(
            title=title,
            task="; ".join(analysis.results.not_default),
            command=command,
            report=report,
            style=style,
            script=script,
            policy=policy(style, script),
            data=Markup(numbers.replace("<", "\\u003c")),  # no text can end the script element
        )
    )


def data(analysis: Analysis) -> dict[str, Any]:
    """Return everything that the page shows."""
    results, panels = analysis.results, analysis.panels
    metrics = list(_metrics(results))
    shown = _first_shown(results, panels)
    return {
        "metric": results.metric,
        "metrics": [each.told for each in metrics],
        "labels": results.labels,
        "shown": shown,
        "looks": _looks(results.labels, shown),
        "most_detailed": MOST_DETAILED,
        "words": {"tests": analysis.comparisons.reference_words, "cost": ABOUT_COST},
        "panels": [_Numbers(analysis, panel, metrics).told() for panel in panels],
    }


def _metrics(results: Results) -> Iterator[_Metric]:
    """Yield the metrics that some runs have: the tested one first."""
    sessions, runs = results.sessions, results.runs
    scores = [each for each in BUILT_IN if each.score] + [each for each in DIAGNOSTICS if each.shown]
    scores.sort(key=lambda each: each.name != _column(results))
    for each in scores:
        if sessions[each.name].notna().any():
            yield _Metric(each.title, each.name, True, each.higher_is_better)
    for each in BUILT_IN:
        if each.name in (*PER_RUN, "pd", "rpd") and runs[each.name].notna().any():
            yield _Metric(each.title, each.name, False, each.higher_is_better)
    for each in results.others:
        if each.shown and (sessions if each.by_session else runs)[each.name].notna().any():
            yield _Metric(each.title, each.name, each.by_session, each.higher_is_better, percent=False)


def _column(results: Results) -> str:
    """Return the column of the metric that the report tests."""
    return SCORED_BY[results.metric]


def _first_shown(results: Results, panels: Sequence[Panel]) -> list[int]:
    """Return the configurations to show at first: the reference, proposed ones and the best ranks.

    If a panel has few of these, its own reference and best ranks are shown as well.
    """
    labels = results.labels
    if len(labels) <= MOST_SHOWN + 2:
        return list(range(len(labels)))
    ranked = {panel.title: [label for label in by_rank(panel) if label in panel.rivals] for panel in panels}
    places: dict[str, list[int]] = {}
    for order in ranked.values():
        for place, label in enumerate(order):
            places.setdefault(label, []).append(place)
    best = sorted(places, key=lambda label: (-len(places[label]), sum(places[label]) / len(places[label])))
    roles = results.runs.drop_duplicates("label").set_index("label")["traits"]
    own = [label for label in labels if roles[label].role == PROPOSED][:MOST_PROPOSED]
    chosen = list(dict.fromkeys([labels[0], *own, *best]))[:MOST_SHOWN]
    for panel in panels:
        if len(set(chosen) & set(panel.labels)) < FEWEST_SHOWN:
            chosen += [panel.reference, *ranked[panel.title][:FEWEST_SHOWN]]
    return sorted({labels.index(label) for label in chosen})


@dataclass(frozen=True)
class _Numbers:
    """The numbers of one panel. Rows are configurations, in the order of the tables."""

    analysis: Analysis
    panel: Panel
    metrics: list[_Metric]

    def told(self) -> dict[str, Any]:
        """Return the panel as the page needs it."""
        panel, rows = self.panel, by_rank(self.panel)
        first = panel.runs.drop_duplicates("label").set_index("label")
        tests = self.analysis.comparisons.against(panel, panel.reference)
        cost = self._cost(rows)
        return {
            "title": panel.title,
            **{key: readable(panel.runs[key].iloc[0]) for key in CHOOSERS},
            "more": panel.title.removeprefix(_always(panel)).removeprefix(", "),
            "leaks": panel.leaks,
            "badge": panel.badge,
            "notes": notes_of(panel, self.analysis.comparisons),
            "rows": [self.analysis.results.labels.index(label) for label in rows],
            "reference": rows.index(panel.reference),
            "oracles": [row for row, label in enumerate(rows) if label in panel.oracles],
            "seeds": [cell.text + cell.mark for cell in (seed_count(panel, label) for label in rows)],
            "commands": [self._command(label, first.loc[label]) for label in rows],
            "verdicts": [verdict(tests[label]) if label in tests else "" for label in rows] if tests else [],
            "asterisks": [label in tests and tests[label].significant for label in rows],
            "seconds": [f"{cost[label]:.2f}" if label in cost else None for label in rows],
            "numbers": [self._of(metric, rows, cost) for metric in self.metrics],
            "settings": list(self._settings(rows, first)),
            **self._details(rows),
        }

    def _of(self, metric: _Metric, rows: Sequence[str], cost: Mapping[str, float]) -> dict[str, Any]:
        """Return the values of a metric, their differences from the reference, and the Pareto fronts."""
        tables = self._tables(metric)
        found = [estimates(table) for table in tables]
        text = _percent if metric.percent else plain_texts
        return {
            # By row: the mean and half of its interval for each session, one after the other.
            "values": [[each for of in found for each in text(of[label])] for label in rows],
            "minus": self._minus(metric, tables, rows) if metric.percent and len(rows) > 1 else [],
            "fronts": [self._front(metric, of, rows, cost) for of in found],
        }

    def _tables(self, metric: _Metric) -> list[pd.DataFrame]:
        """Return a table (seeds, configurations) per session and one of averages, or one table per metric."""
        if not metric.by_session:
            return [self.panel.by_seed(metric.column)]
        sessions = sorted(self.panel.sessions["session"].unique())
        tables = [self.panel.by_seed(metric.column, int(session)) for session in sessions]
        return [*tables, self._average(metric)]

    def _average(self, metric: _Metric) -> pd.DataFrame:
        """Return the average over sessions, computed as in the tables."""
        curves: dict[float, list[float]] = {}
        rows = self.panel.sessions
        for run, value in zip(rows["run"].tolist(), rows[metric.column].tolist(), strict=True):
            curves.setdefault(run, []).append(value)
        average = {
            run: mean_of([value for value in curve if value == value]) for run, curve in curves.items()
        }
        return self.panel.by_seed("run").map(lambda run: average.get(run, math.nan))

    def _minus(self, metric: _Metric, tables: Sequence[pd.DataFrame], rows: Sequence[str]) -> list[Any]:
        """Return by row: the difference from the reference and its limits for each session."""
        reference = self.panel.reference
        found: list[Mapping[str, Any]] = [estimates(table.sub(table[reference], axis=0)) for table in tables]
        if metric.column == _column(self.analysis.results):  # the last session as it was tested
            found[-2] = {**found[-2], **self.analysis.comparisons.against(self.panel, reference)}
        return [[each for of in found for each in _limits(of[label])] for label in rows]

    def _front(
        self, metric: _Metric, found: Mapping[str, Estimate], rows: Sequence[str], cost: Mapping[str, float]
    ) -> list[int]:
        """Return the rows on the Pareto front of cost and this metric, without oracles."""
        sign = 1 if metric.higher_is_better else -1
        rivals = [label for label in rows if label in cost and label not in self.panel.oracles]
        means = {label: sign * found[label].mean for label in rivals if found[label].seeds}
        on_it = front(pd.Series({label: cost[label] for label in means}, dtype=float), pd.Series(means))
        return [rows.index(label) for label in on_it]

    def _cost(self, rows: Sequence[str]) -> dict[str, float]:
        """Return the seconds per run; empty if the runs of the panel used different machines."""
        runs = self._charged
        if runs["device"].nunique(dropna=False) > 1 or runs["device"].isna().any():
            return {}
        means = runs.groupby("label")["seconds"].mean()
        return {label: float(means[label]) for label in rows if means[label] > 0}

    @property
    def _charged(self) -> pd.DataFrame:
        runs = charged(self.analysis.results.runs)
        return runs[runs["run"].isin(self.panel.runs["run"])]

    def _settings(self, rows: Sequence[str], first: pd.DataFrame) -> Iterator[dict[str, Any]]:
        """Yield for each method the settings that vary, their values, and the values of each row."""
        for _, configs in first.loc[list(rows)].groupby("method", sort=False):
            scopes = self.panel.scopes
            varied = varied_settings(configs, self.panel.keys, scopes) if len(configs) > 1 else []
            keys = [key for key in varied if key not in (*scopes.task, "method")]
            if not keys:
                continue
            texts = {key: [_text(value) for value in configs[key]] for key in keys}
            values = {
                key: list(dict.fromkeys(_text(value) for value in sorted(configs[key], key=sort_key)))
                for key in keys
            }
            yield {
                "title": configs["traits"].iloc[0].title,
                "keys": keys,
                "values": [values[key] for key in keys],
                "rows": {
                    rows.index(str(label)): [values[key].index(texts[key][place]) for key in keys]
                    for place, label in enumerate(configs.index)
                },
            }

    def _command(self, label: str, config: pd.Series) -> str:
        seeds = sorted(self.panel.runs.loc[self.panel.runs["label"] == label, "seed"].astype(int))
        return command_of(config, self.panel.keys, seeds)

    def _details(self, rows: Sequence[str]) -> dict[str, Any]:
        labels, folders, stored = (
            rows[:MOST_DETAILED],
            self.analysis.results.folders,
            self.analysis.results.stored,
        )
        if not folders and stored is None:  # results in memory, without records by class
            return {"classes": [], "answers": [], "damaged": []}
        scores = [
            by_class.stored_scores(self.panel, label, stored)
            if stored
            else by_class.class_scores(self.panel, label, folders)
            for label in labels
        ]
        found, damaged = by_class.answers(self.panel, labels, folders, stored)
        none = [None] * (len(rows) - len(labels))
        return {
            "classes": [[_class(each) for each in of] for of in scores] + none if any(scores) else [],
            "answers": [_answers(found.get(label)) for label in labels] + none if found else [],
            "damaged": damaged,
        }


def _always(panel: Panel) -> str:
    """Return the part of the title that names what the other choosers choose."""
    dataset, protocol, n_way, k_shot = panel.runs.iloc[0][list(CHOOSERS)]
    return f"{dataset}, {protocol}, {n_way}-way {k_shot}-shot"


def command_of(config: pd.Series, keys: Iterable[str], seeds: Sequence[int]) -> str:
    """Return the command that runs a configuration with `seeds`."""
    given = config["given"]
    words = ["hagmeta", "--dataset", config["dataset"], "--method", config["method"]]
    words += ["--protocol", config["protocol"], "--n-way", config["n_way"], "--k-shot", config["k_shot"]]
    words += ["--seeds", _range(seeds)]
    named = {"dataset", "method", "protocol", "n_way", "k_shot"}
    for key in keys:
        if key in given and key not in named and not is_absent(config[key]):
            value = _exact(config[key])
            words += ["--classes", *value.split("/")] if key == "classes" else ["--set", f"{key}={value}"]
    return shlex.join(map(str, words))


def _range(seeds: Sequence[int]) -> str:
    whole = list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]}-{seeds[-1]}" if whole else ",".join(map(str, seeds))


def _exact(value: Any) -> str:
    """Return a setting as the command line reads it, with all digits."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(float(value))
    return readable(value)


def _text(value: Any) -> str:
    return "not set" if is_absent(value) else readable(value)


def _tenths(share: float) -> int | None:
    """Return a share as whole tenths of a percent, rounded as in the tables."""
    return round(10 * round(100 * share, 1)) if math.isfinite(share) else None


def _percent(found: Estimate) -> list[int | None]:
    return [_tenths(found.mean), _tenths(found.half)]


def _limits(found: Any) -> list[int | None]:
    return [_tenths(found.mean), _tenths(found.low), _tenths(found.high)]


def _class(score: ClassScore) -> list[Any]:
    return [
        score.number,
        score.group,
        score.accuracy.seeds,
        *_percent(score.accuracy),
        *_percent(score.forgetting),
    ]


def _answers(found: Answers | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "seeds": found.seeds,
        "wrong": [[each.true, each.predicted, _tenths(each.share)] for each in found.confusions()],
        "compared": found.compared,
        "only": found.only,
        "examples": [[each.seed, each.query, each.true, each.answer, each.others] for each in found.examples],
    }


def _looks(labels: Sequence[str], shown: Sequence[int]) -> list[list[Any]]:
    """Return for each configuration the number of its colour, its marker and its dashes.

    Up to the number of looks they are those of the figures. Further configurations share colours, but with
    other markers and dashes; those that are shown at first come first.
    """
    count = len(LOOKS)
    order = (
        list(range(len(labels)))
        if len(labels) <= count
        else list(dict.fromkeys([*shown, *range(len(labels))]))
    )
    found: dict[int, list[Any]] = {}
    for place, index in enumerate(order):
        other = LOOKS[(place + SHIFT * (place // count)) % count]
        found[index] = [place % count, other.marker, [] if other.dash == "-" else list(other.dash[1])]
    return [found[index] for index in range(len(labels))]


def _look_style() -> str:
    """Return the colours of configurations as variables, for light and dark pages."""
    light, dark = (
        "".join(f"--look-{place}:{color};" for place, color in enumerate(colors))
        for colors in ([look.color for look in LOOKS], DARK)
    )
    classes = "".join(f".look-{place}{{color:var(--look-{place})}}" for place in range(len(LOOKS)))
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}}}\n{classes}\n"
