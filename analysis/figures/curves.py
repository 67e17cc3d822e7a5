"""Draw accuracy by session with a line per configuration, and the paired differences below."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.comparisons import Analysis
from analysis.data.results import Panel
from analysis.figures import style, summary
from analysis.figures.style import Drawing
from analysis.tables.papers import SOURCE, printed_curves

MOST_LINES = 10  # with more lines, only three are highlighted


def draw(analysis: Analysis) -> Iterator[Drawing]:
    """Yield the session curves of each setting."""
    panels = analysis.panels
    chosen = panels if len(panels) < 3 else summary.richest(panels, summary.MOST_PANELS)
    for panel in chosen:
        yield _curves(panel, summary.left_out(len(chosen), len(panels)))


@style.styled
def _curves(panel: Panel, rest: str) -> Drawing:
    table = summary.estimates(panel.sessions, ("label", "session"), "score")
    last = table["mean"].groupby("label", sort=False).last()
    crowded = len(last) > MOST_LINES
    chosen = _outstanding(panel, last) if crowded else panel.labels
    paired = _paired(panel, chosen)
    figure, axes = _axes(below=not paired.empty)
    if crowded:
        _background(axes[0], table.drop(index=chosen, level="label"))
    looks = style.looks(panel.everyone, chosen)
    lines = {label: _line(axes[0], table.loc[label], looks[label], len(chosen)) for label in chosen}
    if not paired.empty:
        _differences(axes[1], paired, looks, summary.shown(panel)[panel.reference])
    for each in axes:
        style.whole_sessions(each, int(panel.sessions["session"].max()))
    for each in axes[:-1]:
        each.set_xlabel("")
    axes[0].set_ylabel("accuracy over all\nclasses so far (%)")
    axes[0].set_title(style.wrapped(summary.heading(panel), style.NEXT_TO_LEGEND))
    figure.align_ylabels(axes)
    _legend(figure, axes[0], panel, last, lines)
    return Drawing(
        f"curves-{panel.slug}",
        "curves",
        f"Session curves: {panel.title}",
        _caption(panel, last, crowded, not paired.empty) + summary.warning(panel) + rest,
        figure,
        panel.leaks,
    )


def _axes(below: bool) -> tuple[Figure, list[Axes]]:
    heights = [3.2, 1.9] if below else [3.6]
    figure, axes = style.grid(
        len(heights), 1, sum(heights) / len(heights), height_ratios=heights, sharex=True
    )
    return figure, list(axes[:, 0])


def _outstanding(panel: Panel, last: pd.Series) -> list[str]:
    return list(dict.fromkeys([panel.reference, *_extremes(panel, last)]))


def _extremes(panel: Panel, last: pd.Series) -> dict[str, str]:
    """Return the configurations with the highest and the lowest end, without oracles."""
    rivals = last.drop([label for label in panel.oracles if len(last) > len(panel.oracles)])
    return {str(rivals.idxmin()): "lowest", str(rivals.idxmax()): "highest"}


def _paired(panel: Panel, chosen: list[str]) -> pd.DataFrame:
    """Return the paired differences from the reference, by label and session."""
    rows = panel.sessions[panel.sessions["label"].isin(chosen)]
    wide = rows.pivot(index=["seed", "session"], columns="label", values="score")[chosen]
    apart = wide.sub(wide[panel.reference], axis=0).drop(columns=panel.reference)
    return summary.estimates(apart.stack().rename("points").reset_index(), ("label", "session"), "points")


def _background(axes: Axes, table: pd.DataFrame) -> None:
    wide = table["mean"].unstack("label")
    axes.plot(wide.index, wide.to_numpy(), color=style.GREY, linewidth=0.7, alpha=0.6, zorder=1)


def _line(axes: Axes, line: pd.DataFrame, look: style.Look, among: int) -> Line2D:
    shade = min(0.16, 0.5 / among)
    axes.fill_between(line.index, line["low"], line["high"], color=look.color, alpha=shade, linewidth=0)
    return axes.plot(line.index, line["mean"], **look.line())[0]


def _differences(axes: Axes, paired: pd.DataFrame, looks: dict[str, style.Look], reference: str) -> None:
    axes.axhline(0, color=next(iter(looks.values())).color, linewidth=1)
    labels = list(dict.fromkeys(paired.index.get_level_values("label")))
    for label in labels:
        _line(axes, paired.loc[label], looks[label], len(labels))
    name = reference if len(reference) < 50 else "the reference"
    axes.set_title(f"minus {name}, paired by seed", fontweight="normal")
    axes.set_ylabel("difference\n(points)")


def _legend(figure: Figure, axes: Axes, panel: Panel, last: pd.Series, lines: dict[str, Line2D]) -> None:
    called = summary.shown(panel)
    ranked = sorted(lines, key=lambda label: -last[label])
    labels, handles = [called[label] for label in ranked], [lines[label] for label in ranked]
    if len(last) > len(lines):
        roles = _extremes(panel, last) | {panel.reference: "reference"}
        labels = [f"{called[label]} ({roles[label]})" for label in ranked]
        handles += axes.plot([], [], color=style.GREY, linewidth=0.7)
        labels.append(f"the other {len(last) - len(lines)}")
    style.legend(figure, handles, labels, "ordered by the last session")


def _caption(panel: Panel, last: pd.Series, crowded: bool, paired: bool) -> str:
    words = (
        "Accuracy over all classes seen so far, after each session. Session 0 is before any new class"
        f" arrives. {summary.band_words(panel.runs)}"
    )
    if crowded:
        words += (
            f" Of {len(last)} configurations, colours mark the reference and the highest and lowest means at"
            " the last session, without oracles. The others are thin grey lines without bands."
        )
    if paired:
        words += (
            " Configurations share the splits of their seeds, so the upper bands can overlap even if"
            " configurations differ. The lower axes show each configuration minus the reference, paired by"
            " seed. Bands are not corrected for multiple comparisons; the table has the tested verdicts."
        )
    return words


COLUMNS = 4
OURS, PAPER = style.LOOKS[0], style.LOOKS[2]


def draw_published(analysis: Analysis) -> Iterator[Drawing]:
    """Yield a figure for each setting that the paper has numbers for."""
    for panel in analysis.panels:
        curves = printed_curves(panel)
        if curves:
            yield _compared(panel, curves)


@style.styled
def _compared(panel: Panel, curves: dict[str, dict[int, float]]) -> Drawing:
    table = summary.estimates(panel.sessions, ("label", "session"), "score")
    columns = min(COLUMNS, len(curves))
    rows = -(-len(curves) // columns)
    figure, grid = style.grid(rows, columns, 1.9, sharex=True, sharey=True)
    for axes in grid.flat[len(curves) :]:
        axes.set_visible(False)
    for axes, (label, printed) in zip(grid.flat, curves.items(), strict=False):
        ours = table.loc[label]
        axes.fill_between(ours.index, ours["low"], ours["high"], color=OURS.color, alpha=0.2, linewidth=0)
        axes.plot(ours.index, ours["mean"], **OURS.line())
        axes.plot(list(printed), list(printed.values()), **PAPER.line())
        axes.set_title(style.wrapped(label, 24), fontsize=8)
        style.whole_sessions(axes, max(int(ours.index.max()), *printed))
    for axes in grid[:-1].flat:
        axes.set_xlabel("")
    for axes in grid[:, 0]:
        axes.set_ylabel("accuracy (%)")
    style.heading(figure, summary.heading(panel))
    protocol = panel.runs["protocol"].iloc[0]
    handles = [style.handle(OURS), style.handle(PAPER)]
    style.legend_below(figure, handles, [f"ours, {protocol}", "printed in the paper"])
    return Drawing(
        f"published-{panel.slug}",
        "published",
        f"Comparison with the paper: {panel.title}",
        f"Accuracy after each session. Blue lines are ours, under the {protocol} protocol."
        f" {summary.band_words(panel.runs)} Black lines are the numbers printed by {SOURCE}. The paper's code"
        f" leaks in the same way as the released protocol.{summary.warning(panel)}",
        figure,
        leaks=True,  # the paper's
    )
