"""Draw how much each hyperparameter matters, and the differences from the centre for each of its values."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.comparisons import Analysis, Comparisons
from analysis.data.results import Panel
from analysis.designs.one_at_a_time import Star, star_of_most_arms
from analysis.figures import style, summary
from analysis.figures.style import Drawing
from analysis.statistics.estimates import estimate

FEWEST_NEIGHBOURS = 2  # configurations that differ from the centre in one setting
COLUMNS = 3
MOST = 2  # figures
MOST_LETTERS = 24  # characters that fit under one panel, and after a bar
ROW, BARS, BAR = 1.9, 0.85, 0.24  # inches: a row of panels, the frame of the bars, and one bar
LEAST = 0.1  # points: the scale of a panel reaches at least this far from zero
BAR_COLOR = style.LOOKS[5].color
LOOK, CENTRE = style.LOOKS[0], style.LOOKS[6]


def draw(analysis: Analysis) -> Iterator[Drawing]:
    """Yield bars and small multiples for each setting with a central configuration and its neighbours."""
    panels = [panel for panel in analysis.panels if not panel.pooled]
    stars = [(panel, star_of_most_arms(panel, analysis.factorials(panel))) for panel in panels]
    stars = [(panel, star) for panel, star in stars if star.neighbours >= FEWEST_NEIGHBOURS]
    for panel, star in stars[:MOST]:
        yield _multiples(panel, star, analysis.comparisons, summary.left_out(MOST, len(stars)))


@style.styled
def _multiples(panel: Panel, star: Star, told: Comparisons, rest: str) -> Drawing:
    table = _from_centre(panel, star, told)
    values = panel.runs.drop_duplicates("config_hash").set_index("config_hash").astype(object)
    leading = _leading(table, star)
    columns = min(COLUMNS, len(leading))
    rows = -(-len(leading) // columns)
    heights = [BARS + BAR * len(leading), ROW * rows]
    figure = Figure(figsize=(style.WIDTH, sum(heights)), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=heights)
    top, bottom = parts
    _bars(top.subplots(), table, {key: (each, values[key][each]) for key, each in leading.items()})
    axes = bottom.subplots(rows, columns, squeeze=False)
    for each, key in zip(axes.flat, leading, strict=False):
        _arm(each, values[key], table, star.centre, star.arms[key])
        each.set_title(key, fontsize=8.5, fontweight="normal")
    for each in axes.flat[len(leading) :]:
        each.set_visible(False)
    reference = values.loc[star.centre, "label"] == panel.reference
    space = "\n" if rows == 1 else " "
    side = f"difference from{space}the {'reference' if reference else 'centre'} (points)"
    bottom.supylabel(side, fontsize=9)
    style.heading(figure, summary.heading(panel))
    asterisk = bool(table.loc[list(leading.values()), "significant"].any())
    caption = _caption(panel, reference, asterisk) + summary.warning(panel) + rest
    title = f"One hyperparameter at a time: {panel.title}"
    return Drawing(f"sensitivity-{panel.slug}", "hyperparameters", title, caption, figure, panel.leaks)


def _caption(panel: Panel, reference: bool, asterisk: bool) -> str:
    """Return the caption without warnings; `asterisk` says whether a bar has one."""
    where = "reference" if reference else "centre of the study, which is not the reference of the tables"
    seeds = summary.seeds_of(panel.runs)
    spread = (
        " There is one seed, so there are no intervals."
        if seeds == "one seed"
        else f" Values are means over {seeds}. Lines through dots and bars are Student's 95 % intervals, not"
        " corrected. If such a line includes zero, the seeds do not show the sign of the difference."
    )
    mark = " An asterisk marks significant differences." if asterisk else ""
    return (
        "Accuracy at the last session when one setting changes and all others stay the same. All values are"
        f" differences, in points and paired by seed. The diamond at zero is the {where}. The bars at the top"
        " show how much each setting matters: the size of its largest mean difference. The text next to a"
        f" bar has the sign and the value of the setting.{mark} Below, each setting has a scale of its own,"
        f" and the setting with the longest bar comes first.{spread} The largest of several differences can"
        " be large by chance. The table in this section has the tested verdicts."
    )


def _from_centre(panel: Panel, star: Star, told: Comparisons) -> pd.DataFrame:
    """Return the paired differences from the centre in points, and whether a test found them.

    Rows are configurations. The columns are mean, low, high and significant.
    """
    labels = panel.runs.drop_duplicates("config_hash").set_index("config_hash")["label"]
    last = panel.by_seed("last")
    rows = {}
    for each in (star.centre, *itertools.chain(*star.arms.values())):
        found = estimate(last[labels[each]] - last[labels[star.centre]])
        test = told.pair(panel, labels[each], labels[star.centre])
        limits = [100 * found.mean, 100 * found.low, 100 * found.high]
        rows[each] = [*limits, test is not None and test.significant]
    return pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "low", "high", "significant"])


def _leading(table: pd.DataFrame, star: Star) -> dict[str, str]:
    """Return the configuration with the largest difference for each setting, most important first."""
    size = table["mean"].abs().fillna(0)  # without a common seed there is no difference
    largest = {key: str(size.loc[arm].idxmax()) for key, arm in star.arms.items()}
    return dict(sorted(largest.items(), key=lambda item: -size[item[1]]))


def _bars(axes: Axes, table: pd.DataFrame, leading: dict[str, tuple[str, Any]]) -> None:
    """Draw a bar per setting: the size of the largest difference, with the interval of that value."""
    rows = np.arange(len(leading))
    found = table.loc[[each for each, _ in leading.values()]]
    size, half = found["mean"].abs().to_numpy(), (found["high"] - found["low"]).to_numpy() / 2
    axes.axvline(0, color=style.INK, linewidth=1)
    axes.barh(rows, size, height=0.66, color=BAR_COLOR)
    known = ~np.isnan(half)
    axes.errorbar(size[known], rows[known], xerr=half[known], fmt="none", ecolor=style.INK, capsize=2.5)
    margin = axes.get_yaxis_transform()  # x in widths of the axes, y in rows
    for row, (each, value) in enumerate(leading.values()):
        words = _bar_words(table.loc[each], value)
        axes.text(1.02, row, words, transform=margin, va="center", fontsize=8)
    axes.set_yticks(rows, list(leading))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("largest difference of each setting (points)")


def _bar_words(found: pd.Series, value: Any) -> str:
    """Return the difference with its sign, and the value of the setting that makes it."""
    if np.isnan(found["mean"]):
        return "no common seed"
    shown = f"{round(found['mean'], 1) + 0.0:+.1f}{'*' if found['significant'] else ''}"
    return f"{shown} with {textwrap.shorten(summary.text(value), MOST_LETTERS, placeholder='…')}"


def _arm(axes: Axes, values: pd.Series, table: pd.DataFrame, centre: str, arm: list[str]) -> None:
    hashes = sorted([centre, *arm], key=lambda each: _order(values[each]))
    places, ticks = _places(axes, [values[each] for each in hashes])
    line = table.loc[hashes]
    axes.axhline(0, color=style.GREY, linewidth=0.8, zorder=0)
    ordered = isinstance(values[centre], (int, float)) and not isinstance(values[centre], bool)
    options = LOOK.line() | {"linestyle": "-" if ordered else "none", "markeredgewidth": 0.4}
    style.interval(axes, places, line["mean"], line["low"], line["high"], **options)
    where = places[hashes.index(centre)]
    axes.plot([where], [0], "D", color=CENTRE.color, markersize=6.5, zorder=4)
    axes.set_xticks(places, ticks)
    if _crowded(axes, places, ticks):
        plt.setp(axes.get_xticklabels(), rotation=30, ha="right", rotation_mode="anchor")
    axes.minorticks_off()
    _scale(axes)


def _crowded(axes: Axes, places: list[float], ticks: list[str]) -> bool:
    """Return whether tick labels would touch their neighbours; `places` are in order."""
    across = (axes.transScale + axes.transLimits).transform([(place, 0.0) for place in places])[:, 0]
    pairs = zip(itertools.pairwise(across), itertools.pairwise(ticks), strict=True)
    return any(MOST_LETTERS * (b - a) < (len(one) + len(other) + 1) / 2 for (a, b), (one, other) in pairs)


def _scale(axes: Axes) -> None:
    """Give the axes a scale of their own with zero in it; tiny differences do not fill it."""
    axes.margins(y=0.12)  # room for the diamond
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, -LEAST), max(high, LEAST))
    axes.yaxis.set_major_locator(MaxNLocator(5))


def _places(axes: Axes, values: list[Any]) -> tuple[list[float], list[str]]:
    """Return the places and tick labels of sorted values: a log axis for wide ranges, even steps for text."""
    ticks = [summary.text(value) for value in values]
    if any(isinstance(value, (bool, str)) for value in values):
        axes.set_xlim(-0.5, len(values) - 0.5)
        return list(map(float, range(len(values)))), ticks
    positive = [value for value in values if value > 0]
    if positive and max(positive) >= 8 * min(positive):
        zero = {"linthresh": min(positive), "linscale": 0.4} if min(values) == 0 else {}
        axes.set_xscale("symlog" if zero else "log", **zero)
        axes.set_xmargin(0.12)
    return list(map(float, values)), ticks


def _order(value: Any) -> tuple[int, Any]:
    return (1, value) if isinstance(value, str) else (0, value)
