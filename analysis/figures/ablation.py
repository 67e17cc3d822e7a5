"""What GPIL, NLA and TLA each add: effects of the switches, and the accuracies of their combinations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.drawing import Drawing
from analysis.figures import names, style, summary
from analysis.frame import TOGGLES, Panel, Results
from analysis.statistics import Difference, factorial_effects

Cells = dict[tuple[bool, ...], pd.DataFrame]  # for each combination (seeds, sessions) accuracies as fractions
MOST_FACTORIALS = 4
FIRST, LAST = style.LOOKS[1], style.LOOKS[0]


def draw(results: Results) -> Iterator[Drawing]:
    """Effects and combinations in each setting where at least two switches make a whole factorial."""
    found = [(panel, *each) for panel in summary.panels(results) for each in _factorials(panel)]
    rest = summary.left_out(MOST_FACTORIALS, len(found), "factorials")
    for panel, name, factors, cells in found[:MOST_FACTORIALS]:
        if len(_complete(cells)):
            yield _effects(panel, name, factors, cells, rest)
        yield _combinations(panel, name, factors, cells, rest)


def _factorials(panel: Panel) -> Iterator[tuple[str, list[str], Cells]]:
    """Runs that differ in switches only, if every combination of those is there."""
    runs = panel.runs[panel.runs["method"] == "hag-meta"]
    others = [key for key in panel.varied() if key not in (*TOGGLES, "method")]
    if runs.empty:
        return
    called = names.describe(runs, panel.keys, TOGGLES) if others else pd.Series("", index=runs.index)
    for name, group in runs.groupby(called, sort=False):
        factors = [key for key in TOGGLES if key in group and group[key].nunique() == 2]
        combinations = group[factors].drop_duplicates() if factors else []
        if len(factors) < 2 or len(combinations) != 2 ** len(factors):
            continue
        yield str(name), factors, _cells(panel, group, factors)


def _cells(panel: Panel, group: pd.DataFrame, factors: list[str]) -> Cells:
    sessions = panel.sessions[panel.sessions["run"].isin(group["run"])]
    return {
        tuple(map(bool, cell)): rows.pivot(index="seed", columns="session", values="accuracy")
        for cell, rows in sessions.groupby(factors)
    }


def _complete(cells: Cells) -> pd.Index:
    """The seeds that have every combination."""
    seeds = [table.dropna().index for table in cells.values()]
    common = seeds[0]
    for each in seeds[1:]:
        common = common.intersection(each)
    return common


@style.styled
def _effects(panel: Panel, name: str, factors: list[str], cells: Cells, rest: str) -> Drawing:
    last = int(next(iter(cells.values())).columns.max())
    upper = [factor.upper() for factor in factors]
    figure, ((axes,),) = style.grid(1, 1, 1.3 + 0.36 * (2 ** len(factors) - 1))
    axes.axvline(0, color=style.INK, linewidth=1)
    for session, look, shift in ((0, FIRST, -0.15), (last, LAST, 0.15)):
        effects = factorial_effects({cell: table[session] for cell, table in cells.items()}, upper)
        _dots(axes, effects, look, shift, f"session {session}" + (" (the last)" if session == last else ""))
    axes.set_yticks(range(len(effects)), list(effects))
    axes.set_ylim(len(effects) - 0.5, -0.5)
    axes.axhline(len(factors) - 0.5, color=style.GREY, linewidth=0.8, linestyle=(0, (2, 2)))
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("effect on accuracy (points); right of zero: it helps")
    axes.set_title(_heading(panel, name))
    style.legend_below(figure, *axes.get_legend_handles_labels())
    seeds = len(_complete(cells))
    caption = (
        f"Main effects of {', '.join(upper)} (above the dotted"
        " line) and their interactions (below it), before the first and after the last session. A main"
        " effect is"
        " the mean accuracy with the switch on less that with it off; an interaction is half of what one"
        " adds more"
        f" when the other is on. Paired over the {_seeds(seeds)} that have all {len(cells)} combinations;"
        " lines are"
        " 95 % intervals from resampling seeds, and an asterisk marks a Wilcoxon test below 0.05 after Holm's"
        f" correction. Look for intervals that leave zero.{summary.warning(panel)}{rest}"
    )
    title = f"What each component adds: {_where(panel, name)}"
    return Drawing(names.slug("ablation-effects", panel.slug, name), "ablation", title, caption, figure)


def _dots(axes: Axes, effects: dict[str, Difference], look: style.Look, shift: float, label: str) -> None:
    rows = np.arange(len(effects)) + shift
    mean, low, high = (
        100 * np.array([getattr(e, key) for e in effects.values()]) for key in ("mean", "low", "high")
    )
    options = {"fmt": look.marker, "color": look.color, "label": label, "markersize": 5}
    style.interval(axes, mean, rows, low, high, horizontal=True, **options)
    for row, effect, right in zip(rows, effects.values(), np.fmax(mean, high), strict=True):
        if effect.significant:
            axes.annotate(
                "*", (right, row), (4, -4), textcoords="offset points", color=look.color, weight="bold"
            )


@style.styled
def _combinations(panel: Panel, name: str, factors: list[str], cells: Cells, rest: str) -> Drawing:
    order = sorted(cells, key=lambda cell: (-sum(cell), [not on for on in cell]))
    labels = [" + ".join(f.upper() for f, on in zip(factors, cell, strict=True) if on) for cell in order]
    labels = [
        label or names.ALL_OFF.replace("three", "two" if len(factors) == 2 else "three") for label in labels
    ]
    last = int(cells[order[0]].columns.max())
    figure, ((axes,),) = style.grid(1, 1, 1.3 + 0.42 * len(order))
    for session, look, shift in ((0, FIRST, -0.12), (last, LAST, 0.12)):
        tables = [100 * cells[cell][session].dropna() for cell in order]
        rows = np.repeat(np.arange(len(order)), [len(table) for table in tables]) + 2.2 * shift
        axes.plot(
            np.concatenate(tables), rows, "o", color=look.color, alpha=0.4, markersize=3, markeredgewidth=0
        )
        long = pd.concat(tables, keys=range(len(order)), names=["row"]).rename("value").div(100).reset_index()
        table = summary.estimates(long, ["row"], "value")
        options = {"fmt": look.marker, "color": look.color, "markersize": 5.5}
        words = f"session {session}" + (" (the last)" if session == last else "")
        where = np.arange(len(order)) + shift
        style.interval(
            axes, table["mean"], where, table["low"], table["high"], horizontal=True, label=words, **options
        )
    axes.set_yticks(range(len(order)), labels)
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.set_xlabel("accuracy over all classes met (%)")
    axes.set_title(_heading(panel, name))
    style.legend_below(figure, *axes.get_legend_handles_labels())
    runs = panel.runs[panel.runs["seed"].isin({seed for table in cells.values() for seed in table.index})]
    caption = (
        f"The {len(order)} combinations of components before the first and after the last session."
        f" {summary.band_words(runs, 'lines')} Faint dots beside them are single seeds. Seeds share their"
        " splits, so the"
        " differences are surer than these intervals suggest; the effects are tested in pairs, seed by seed."
        f"{summary.warning(panel)}{rest}"
    )
    title = f"The combinations of components: {_where(panel, name)}"
    return Drawing(names.slug("ablation-combinations", panel.slug, name), "ablation", title, caption, figure)


def _where(panel: Panel, name: str) -> str:
    return f"{panel.title}; {name}" if name else panel.title


def _heading(panel: Panel, name: str) -> str:
    return style.wrapped(summary.heading(panel) + (f"; {name}" if name else ""), 80)


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"{count} seeds"
