"""Draw the change in accuracy at the last session when one hyperparameter changes at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.designs import Star, star_of_most_arms
from analysis.drawing import Drawing
from analysis.figures import names, style, summary
from analysis.frame import Panel, Results
from analysis.statistics import estimate

FEWEST_NEIGHBOURS = 2  # configurations that differ from the centre in one setting
COLUMNS = 3
MOST = 2  # figures
MOST_LETTERS = 24  # characters of tick labels under one panel; longer ones are rotated
LOOK, CENTRE = style.LOOKS[0], style.LOOKS[6]


def draw(results: Results) -> Iterator[Drawing]:
    """Yield small multiples for each setting with a central configuration and its neighbours."""
    stars = [(panel, star_of_most_arms(panel)) for panel in results.panels()]
    stars = [(panel, star) for panel, star in stars if star.neighbours >= FEWEST_NEIGHBOURS]
    for panel, star in stars[:MOST]:
        yield _multiples(panel, star, summary.left_out(MOST, len(stars)))


@style.styled
def _multiples(panel: Panel, star: Star, rest: str) -> Drawing:
    table = _from_centre(panel, star)
    columns = min(COLUMNS, len(star.arms))
    rows = -(-len(star.arms) // columns)
    figure, axes = style.grid(rows, columns, 1.9, sharey=True)
    values = panel.runs.drop_duplicates("config_hash").set_index("config_hash").astype(object)
    moved = {key: table["mean"].loc[arm].abs().max() for key, arm in star.arms.items()}
    for index, key in enumerate(sorted(star.arms, key=lambda key: -np.nan_to_num(moved[key]))):
        _arm(axes.flat[index], values[key], table, star.centre, star.arms[key])
        axes.flat[index].set_title(key, fontsize=8.5, fontweight="normal")
    for index, each in enumerate(axes.flat):
        each.set_visible(index < len(star.arms))
    figure.supylabel("difference from the centre (points)", fontsize=9)
    style.heading(figure, summary.heading(panel))
    caption = (
        "Change in accuracy at the last session, in points, when one setting changes and all others stay the"
        " same. The setting with the largest change comes first. The diamond is the centre, which all panels"
        f" share. Differences are means over {summary.seeds_of(panel.runs)}, paired by seed. Bars are"
        " Student's 95 % intervals, not corrected. The table in this section has the tested"
        f" verdicts.{summary.warning(panel)}{rest}"
    )
    title = f"One hyperparameter at a time: {panel.title}"
    return Drawing(f"sensitivity-{panel.slug}", "hyperparameters", title, caption, figure, panel.leaks)


def _from_centre(panel: Panel, star: Star) -> pd.DataFrame:
    """Return the paired differences from the centre (configurations; mean, low, high) in points."""
    labels = panel.runs.drop_duplicates("config_hash").set_index("config_hash")["label"]
    last = panel.by_seed("last")
    there = [star.centre, *itertools.chain(*star.arms.values())]
    found = {each: estimate(last[labels[each]] - last[labels[star.centre]]) for each in there}
    limits = {each: [100 * value.mean, 100 * value.low, 100 * value.high] for each, value in found.items()}
    return pd.DataFrame.from_dict(limits, orient="index", columns=["mean", "low", "high"])


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
    if sum(map(len, ticks)) > MOST_LETTERS:
        plt.setp(axes.get_xticklabels(), rotation=30, ha="right", rotation_mode="anchor")
    axes.minorticks_off()


def _places(axes: Axes, values: list[Any]) -> tuple[list[float], list[str]]:
    """Return the places and tick labels of sorted values: a log axis for wide ranges, even steps for text."""
    ticks = [names.text(value) for value in values]
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
