"""Draw the strict and the released protocol with the same configurations and seeds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from analysis.comparisons import Analysis
from analysis.designs.protocols import ProtocolSetting
from analysis.figures import style, summary
from analysis.figures.style import Drawing

MOST_PAIRS = 3  # in a figure
MOST_FIGURES = 2
LOOKS = {"strict": style.LOOKS[0], "released": style.LOOKS[1]}


def draw(analysis: Analysis) -> Iterator[Drawing]:
    """Yield a figure per setting whose configurations ran under both protocols."""
    found = analysis.protocols
    for setting in found[:MOST_FIGURES]:
        yield _pairs(setting, analysis.results.sessions, summary.left_out(MOST_FIGURES, len(found)))


@style.styled
def _pairs(setting: ProtocolSetting, sessions: pd.DataFrame, rest: str) -> Drawing:
    words, runs = setting.words, setting.runs
    drawn = setting.pairs[:MOST_PAIRS]
    named = sessions.merge(runs[["run", "name"]], on="run")
    figure, axes = style.grid(len(drawn), 2, 2.3, sharex=True, sharey="col", width_ratios=[1.25, 1])
    for row, name in enumerate(drawn):
        own = named[named["name"] == name]
        _curves(axes[row, 0], own)
        _difference(axes[row, 1], own)
        axes[row, 0].set_title(style.wrapped(name, 48), fontsize=8.5, fontweight="normal")
        axes[row, 1].set_title("released minus strict, paired by seed", fontsize=8.5, fontweight="normal")
    last = int(named["session"].max())
    for each in axes.flat:
        style.whole_sessions(each, last)
        each.label_outer()
        each.tick_params(labelleft=True)
    style.heading(figure, f"{words}: strict and released ({summary.LEAKS})")
    style.legend_below(figure, [style.handle(look) for look in LOOKS.values()], list(LOOKS))
    used = runs[runs["name"].isin(drawn)]
    left = summary.left_out(len(drawn), len(setting.pairs), "configurations")
    caption = (
        "The same configurations under the strict and the released protocol. Released follows the authors'"
        " code and leaks: it trains on nodes that it is scored on. Left: accuracy after each session."
        f" {summary.band_words(used)} Right: the difference in points, paired by seed, with Student's 95 %"
        " intervals. It measures the leaks together with the other differences of the protocols. Released"
        f" takes one gradient step per session, and its session 0 comes from training episodes.{left}{rest}"
    )
    title = f"Effect of the leaks: {words}"
    return Drawing(summary.slug("protocol", words), "protocol", title, caption, figure, leaks=True)


def _curves(axes: Axes, sessions: pd.DataFrame) -> None:
    table = summary.estimates(sessions, ("protocol", "session"), "score")
    for protocol, look in LOOKS.items():
        line = table.loc[protocol]
        axes.fill_between(line.index, line["low"], line["high"], color=look.color, alpha=0.18, linewidth=0)
        axes.plot(line.index, line["mean"], **look.line())
    axes.set_ylabel(style.ACCURACY)


def _difference(axes: Axes, sessions: pd.DataFrame) -> None:
    wide = sessions.pivot(index=["session", "seed"], columns="protocol", values="score").dropna()
    apart = (wide["released"] - wide["strict"]).rename("points").reset_index()
    told = summary.estimates(apart, ["session"], "points")
    axes.axhline(0, color=style.INK, linewidth=1)
    options: dict[str, Any] = {"fmt": "o-", "color": style.INK, "markersize": 3.5}
    style.interval(axes, told.index, told["mean"], told["low"], told["high"], **options)
    axes.set_ylabel("difference (points)")
