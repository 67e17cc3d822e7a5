"""Draw the effects of settings, largest first, and the accuracies of their combinations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.comparisons import Analysis
from analysis.designs.factorials import Factorial
from analysis.figures import style, summary
from analysis.figures.style import Drawing
from analysis.statistics.inference import Difference
from analysis.words import listed

MOST = 4  # factorials
FEWEST_FACTORS = 2
MOST_CELLS = 32  # combinations of a figure
FIRST, LAST = style.LOOKS[1], style.LOOKS[0]


def draw(analysis: Analysis) -> Iterator[Drawing]:
    """Yield effects and combinations for each setting with a complete factorial of two or more settings."""
    numbered = [pair for panel in analysis.panels for pair in enumerate(analysis.factorials(panel))]
    numbered = [(number, each) for number, each in numbered if len(each.factors) >= FEWEST_FACTORS]
    # The first factorial of each panel comes before the second of any.
    numbered.sort(key=lambda pair: (pair[1].panel.leaks, pair[0]))
    found = [each for _, each in numbered]
    rest = summary.left_out(MOST, len(found), "factorial designs")
    for each in found[:MOST]:
        seeds = len(pd.DataFrame(each.cells("last")).dropna())
        if seeds:
            yield _effects(each, analysis, seeds, rest)
        if len(each.cells("last")) <= MOST_CELLS:
            yield _combinations(each, rest)


def _moments(factorial: Factorial) -> list[tuple[str, str, style.Look, float]]:
    """Return (column, words, look, offset from the middle of the row) for both sessions."""
    last = int(factorial.panel.sessions["session"].max())
    return [("first", "session 0", FIRST, -1.0), ("last", f"session {last} (the last)", LAST, 1.0)]


@style.styled
def _effects(factorial: Factorial, analysis: Analysis, seeds: int, rest: str) -> Drawing:
    told = analysis.comparisons
    last = told.effects_of(factorial, "last")
    main = sorted(factorial.main, key=lambda name: -abs(last[name].mean))
    names = [*main, *sorted((each for each in last if " x " in each), key=lambda name: -abs(last[name].mean))]
    figure, ((*axes,),) = style.grid(1, 2, 1.1 + 0.3 * len(names), sharey=True)
    for each, (moment, words, look, _) in zip(axes, _moments(factorial), strict=True):
        found = told.effects_of(factorial, moment)
        _effect_dots(each, {name: found[name] for name in names}, look, factorial.aliases(moment))
        _rows(each, [style.wrapped(name, 30) for name in names], words)
        each.axhline(len(main) - 0.5, color=style.GREY, linewidth=0.8, linestyle=(0, (2, 2)))
        each.grid(axis="y", visible=False)
        each.set_xlabel("effect on accuracy (points)")
    style.heading(figure, _heading(factorial))
    count = len(factorial.cells("last"))
    who = "one seed that has" if seeds == 1 else f"{seeds} seeds that have"
    caption = (
        f"Main effects of {listed(factorial.names)} (above the dotted line) and their interactions (below"
        " it), at session 0 and at the last session, sorted by their size at the last session. Dots are"
        f" means and bars simultaneous intervals over the {who} all {count} combinations. An interaction is"
        " half the change that one setting makes to the effect of another. An asterisk marks significant"
        ' effects, and "=" marks effects that equal another one for every seed. The two sides have different'
        " scales."
        f" {told.effects[factorial.title, 'last'].words}"
        f"{factorial.about}{_not_here(factorial, analysis)}{summary.warning(factorial.panel)}{rest}"
    )
    title = f"Which setting matters most? {factorial.title}"
    return Drawing(
        f"ablation-effects-{factorial.slug}", "ablation", title, caption, figure, factorial.panel.leaks
    )


def _not_here(factorial: Factorial, analysis: Analysis) -> str:
    """Return which settings of the report vary but are not in this figure, and where they are compared."""
    results, runs = analysis.results, factorial.runs
    here = results.runs[results.runs["dataset"].isin(runs["dataset"])]
    apart = [key for key in results.varied() if key in results.scopes.both and here[key].nunique() > 1]
    others = [key for key in apart if runs[key].nunique(dropna=False) == 1]
    if not others:
        return ""
    tables = ['"What more labels gain"'] * (bool(analysis.shots) and "k_shot" in others)
    tables += ['"Strict and released protocol"'] * (bool(analysis.protocol_pairs) and "protocol" in others)
    where = f" The tables {listed(tables)} compare their values." if len(tables) > 1 else ""
    where = f" The table {tables[0]} compares its values." if len(tables) == 1 else where
    be = "is" if len(others) == 1 else "are"
    return f" Varied, but not in this figure, {be} {listed(others)}.{where}"


def _effect_dots(
    axes: Axes, effects: dict[str, Difference], look: style.Look, aliases: dict[str, str]
) -> None:
    rows = np.arange(len(effects))
    told = [(effect.mean, effect.low, effect.high) for effect in effects.values()]
    mean, low, high = 100 * np.array(told).T
    axes.axvline(0, color=style.INK, linewidth=1)
    options: dict[str, Any] = {"fmt": look.marker, "color": look.color, "markersize": 5}
    style.interval(axes, mean, rows, low, high, horizontal=True, **options)
    margin = axes.get_yaxis_transform()  # x in widths of the axes, y in rows
    for row, (name, effect) in enumerate(effects.items()):
        mark = "=" if name in aliases else "*" if effect.significant else ""
        words = f"{round(100 * effect.mean, 1) + 0.0:+.1f}{mark}"
        axes.text(1.02, row, words, transform=margin, va="center", fontsize=8)


@style.styled
def _combinations(factorial: Factorial, rest: str) -> Drawing:
    places = {cell: factorial.places(cell) for cell in factorial.cells("last")}
    cells = sorted(places, key=lambda cell: (sum(map(bool, places[cell])), places[cell]))
    figure, ((axes,),) = style.grid(1, 1, 1.1 + 0.42 * len(cells))
    for moment, words, look, side in _moments(factorial):
        series = factorial.cells(moment)
        _combination_dots(axes, [series[cell] for cell in cells], look, side, words)
    labels = [factorial.label(cell) for cell in cells]
    _rows(axes, labels, style.wrapped(_heading(factorial), 80))
    axes.set_xlabel("accuracy over all classes seen so far (%)")
    style.legend_below(figure, *axes.get_legend_handles_labels())
    caption = (
        f"Accuracy of the {len(cells)} combinations at session 0 and at the last session."
        f" {summary.band_words(factorial.runs, 'lines')} Faint dots are single seeds. Configurations share"
        " the splits of their seeds, so their differences are more certain than these intervals suggest. The"
        f" effects are tested in pairs, by seed.{summary.warning(factorial.panel)}{rest}"
    )
    title = f"Every combination: {factorial.title}"
    return Drawing(
        f"ablation-combinations-{factorial.slug}", "ablation", title, caption, figure, factorial.panel.leaks
    )


def _combination_dots(axes: Axes, series: list[pd.Series], look: style.Look, side: float, label: str) -> None:
    rows = np.arange(len(series))
    long = pd.concat(series, keys=rows, names=["row"]).rename("value").reset_index()
    seeds: dict[str, Any] = {"color": look.color, "alpha": 0.4, "markersize": 3, "markeredgewidth": 0}
    axes.plot(100 * long["value"], long["row"] + 0.27 * side, "o", **seeds)
    table = summary.estimates(long, ["row"], "value")
    options: dict[str, Any] = {"fmt": look.marker, "color": look.color, "label": label, "markersize": 5.5}
    places = table["mean"], rows + 0.12 * side, table["low"], table["high"]
    style.interval(axes, *places, horizontal=True, **options)


def _rows(axes: Axes, labels: list[str], title: str) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_title(title)


def _heading(factorial: Factorial) -> str:
    return summary.heading(factorial.panel) + (f"; {factorial.name}" if factorial.name else "")
