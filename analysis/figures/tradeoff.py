"""Draw stability against plasticity: base and novel accuracy through the sessions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from analysis.comparisons import Analysis
from analysis.drawing import Drawing
from analysis.figures import names, style, summary
from analysis.frame import Panel

MOST_PATHS = 6


def draw(analysis: Analysis) -> Iterator[Drawing]:
    """Yield a figure with a path per configuration, for each setting with at least two sessions."""
    panels = [panel for panel in analysis.panels if panel.sessions["session"].max() > 1]
    chosen = summary.richest(panels, summary.MOST_PANELS)
    for panel in chosen:
        yield _paths(panel, summary.left_out(len(chosen), len(panels)))


def chosen_paths(panel: Panel) -> list[str]:
    """Return all configurations, or the reference and the highest without oracles if there are many."""
    if len(panel.labels) <= MOST_PATHS:
        return panel.labels
    ends = panel.runs.groupby("label", sort=False)["last"].mean().drop(list(panel.oracles))
    highest = ends.sort_values(ascending=False).index[: MOST_PATHS - 1]
    return list(dict.fromkeys([panel.reference, *highest]))


@style.styled
def _paths(panel: Panel, rest: str) -> Drawing:
    chosen = chosen_paths(panel)
    rows = panel.sessions[panel.sessions["session"] > 0]
    means = 100 * rows.groupby(["label", "session"])[["base_score", "novel_score"]].mean()
    figure, ((axes,),) = style.grid(1, 1, 4.4)
    looks = style.looks(panel.everyone, chosen)
    for label, look in looks.items():
        _path(axes, means.loc[label], look, numbered=label == panel.reference)
    axes.set_xlabel("stability: accuracy on classes of session 0 (%)")
    axes.set_ylabel("plasticity: accuracy on all later classes (%)")
    axes.set_title(style.wrapped(summary.heading(panel), style.NEXT_TO_LEGEND))
    called = names.shown(panel)
    style.legend(figure, [style.handle(look) for look in looks.values()], [called[label] for label in looks])
    last = int(rows["session"].max())
    left = summary.left_out(len(chosen), len(panel.labels), "configurations")
    caption = (
        "Accuracy on the classes of session 0 against accuracy on all later classes. Each path goes from"
        f" session 1 (open mark) to session {last} (full mark). Some sessions of the reference are numbered."
        f" Values are means over {summary.seeds_of(panel.runs)} per configuration. Up and to the right is"
        " better. A path to the left forgets the first classes; a path downwards loses the new"
        f" ones.{left}{summary.warning(panel)}{rest}"
    )
    title = f"Stability against plasticity: {panel.title}"
    return Drawing(f"tradeoff-{panel.slug}", "forgetting", title, caption, figure, panel.leaks)


def _path(axes: Axes, path: pd.DataFrame, look: style.Look, numbered: bool) -> None:
    base, novel = path["base_score"].to_numpy(), path["novel_score"].to_numpy()
    axes.plot(base, novel, **{**look.line(), "marker": "none", "linewidth": 1.1, "alpha": 0.9})
    middle = len(path) // 2
    between = ((base[middle - 1] + base[middle]) / 2, (novel[middle - 1] + novel[middle]) / 2)
    arrow = {"arrowstyle": "-|>", "color": look.color, "mutation_scale": 11, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", between, (base[middle - 1], novel[middle - 1]), arrowprops=arrow)
    axes.plot(base[1:-1], novel[1:-1], look.marker, color=look.color, markersize=3.2)
    options: dict[str, Any] = {"color": look.color, "markersize": 7, "markeredgewidth": 1.3, "zorder": 4}
    axes.plot(base[:1], novel[:1], look.marker, **{**options, "markerfacecolor": "white"})
    axes.plot(base[-1:], novel[-1:], look.marker, **options)
    if numbered:
        for place in sorted({0, middle, len(path) - 1}):  # more numbers would overlap
            where, words = (base[place], novel[place]), str(path.index[place])
            axes.annotate(words, where, (4, 4), textcoords="offset points", color=look.color, fontsize=8)
