"""Draw how classes are forgotten: accuracy by session, and stability against plasticity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.comparisons import Analysis
from analysis.data.labels import TOGGLES
from analysis.data.results import Panel
from analysis.figures import style, summary
from analysis.figures.style import Drawing

MOST_NUMBERED = 12  # with more sessions, cells have no room for numbers


def draw_matrix(analysis: Analysis) -> Iterator[Drawing]:
    """Yield the matrices of the reference and of one other configuration, for each setting."""
    panels = [panel for panel in analysis.panels if panel.runs["matrix"].notna().all()]
    chosen = summary.richest(panels, summary.MOST_PANELS)
    for panel in chosen:
        yield _matrices(panel, summary.left_out(len(chosen), len(panels)))


def contrast(panel: Panel) -> str | None:
    """Return the configuration to compare with the reference.

    It is the one with all switches off, otherwise the best other method without oracles, otherwise the worst
    configuration.
    """
    first = panel.runs.drop_duplicates("label").set_index("label")
    apart = {panel.reference, *first.index[first["oracle"]]}
    last = panel.runs.groupby("label", sort=False)["last"].mean().drop(list(apart))
    if last.empty:
        return None
    own = first["method"] == first.loc[panel.reference, "method"]
    off = own & (first.reindex(columns=list(TOGGLES)) == False).all(axis=1)  # noqa: E712
    if off.any() and off.idxmax() != panel.reference:
        return str(off.idxmax())
    others = last[~own[last.index]]
    return str(last.idxmin() if others.empty else others.idxmax())


def mean_matrix(runs: pd.DataFrame) -> np.ndarray:
    """Return the mean over seeds (sessions + 1, sessions + 1) in percent; NaN above the diagonal."""
    sessions = max(map(len, runs["matrix"]))
    filled = np.full((len(runs), sessions, sessions), np.nan)
    for number, rows in enumerate(runs["matrix"]):
        for after, row in enumerate(rows):
            filled[number, after, : len(row)] = row
    held = ~np.isnan(filled).all(axis=0)
    mean = np.full((sessions, sessions), np.nan)
    mean[held] = 100 * np.nanmean(filled[:, held], axis=0)
    return mean


@style.styled
def _matrices(panel: Panel, rest: str) -> Drawing:
    labels = [label for label in (panel.reference, contrast(panel)) if label]
    matrices = [mean_matrix(panel.runs[panel.runs["label"] == label]) for label in labels]
    low, high = (float(limit([limit(m) for m in matrices])) for limit in (np.nanmin, np.nanmax))
    side = style.WIDTH / 2 if len(labels) == 2 else style.WIDTH * 0.62
    figure, ((*axes,),) = style.grid(1, len(labels), side, width=side * len(labels), sharey=True)
    called = summary.shown(panel)
    for each, label, values in zip(axes, labels, matrices, strict=True):
        many = len(values) > MOST_NUMBERED
        texts = np.array([["" if many or np.isnan(v) else f"{v:.0f}" for v in row] for row in values])
        image = style.heat_map(each, values, texts, low, high, 7.5)
        step = 5 if many else 1
        ticks = range(0, len(values), step)
        each.set_xticks(ticks, ["known" if tick == 0 else str(tick) for tick in ticks], fontsize=7.5)
        each.set_yticks(ticks, map(str, ticks))
        each.set_title(style.wrapped(called[label], 40), fontweight="normal")
        each.set_xlabel("classes that arrived in session")
    axes[0].set_ylabel("after session")
    figure.colorbar(image, ax=axes, label=style.ACCURACY, location="bottom", shrink=0.5, aspect=35, pad=0.02)
    style.heading(figure, summary.heading(panel))
    both = panel.runs[panel.runs["label"].isin(labels)]
    caption = (
        "Accuracy after each session (rows) on the test nodes of the classes that arrived in each session"
        ' (columns). "Known" means the classes of session 0. Values are means over'
        f" {summary.seeds_of(both)} per configuration. All cells share one colour scale. Read down a"
        " column to see how those classes are forgotten or improve. The diagonal shows the accuracy on the"
        f" new classes of each session.{summary.warning(panel)}{rest}"
    )
    title = f"Forgetting by session: {panel.title}"
    return Drawing(f"matrix-{panel.slug}", "forgetting", title, caption, figure, panel.leaks)


MOST_PATHS = 6


def draw_tradeoff(analysis: Analysis) -> Iterator[Drawing]:
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
    called = summary.shown(panel)
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
