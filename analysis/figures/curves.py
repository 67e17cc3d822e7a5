"""Accuracy by session: a figure a setting, a line a configuration, and below what parts them seed by seed."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.drawing import Drawing
from analysis.figures import names, style, summary
from analysis.frame import Panel, Results

MOST_LINES = 10  # above this only three stand out


def draw(results: Results) -> Iterator[Drawing]:
    """Session curves of each setting."""
    panels = results.panels()
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
        _differences(axes[1], paired, looks, names.shown(panel)[panel.reference])
    for each in axes:
        style.whole_sessions(each, int(panel.sessions["session"].max()))
    for each in axes[:-1]:
        each.set_xlabel("")
    axes[0].set_ylabel("accuracy over all\nclasses met (%)")
    axes[0].set_title(style.wrapped(summary.heading(panel), style.BESIDE_LEGEND))
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
    """Who ends highest and lowest, oracles aside."""
    rivals = last.drop([label for label in panel.oracles if len(last) > len(panel.oracles)])
    return {str(rivals.idxmin()): "lowest", str(rivals.idxmax()): "highest"}


def _paired(panel: Panel, chosen: list[str]) -> pd.DataFrame:
    """The estimates by label and session of what separates each from the reference with the same seed."""
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
    axes.set_title(f"less {name}, seed by seed", fontweight="normal")
    axes.set_ylabel("difference\n(points)")


def _legend(figure: Figure, axes: Axes, panel: Panel, last: pd.Series, lines: dict[str, Line2D]) -> None:
    called = names.shown(panel)
    ranked = sorted(lines, key=lambda label: -last[label])
    labels, handles = [called[label] for label in ranked], [lines[label] for label in ranked]
    if len(last) > len(lines):
        roles = _extremes(panel, last) | {panel.reference: "reference"}
        labels = [f"{called[label]} ({roles[label]})" for label in ranked]
        handles += axes.plot([], [], color=style.GREY, linewidth=0.7)
        labels.append(f"the other {len(last) - len(lines)}")
    style.legend(figure, handles, labels, "highest at the end first")


def _caption(panel: Panel, last: pd.Series, crowded: bool, paired: bool) -> str:
    words = (
        "Accuracy over all classes met so far after each session; session 0 is the state before any new"
        f" class arrives. {summary.band_words(panel.runs)}"
    )
    if crowded:
        words += (
            f" Of {len(last)} configurations the reference and those with the highest and the lowest mean at"
            " the last session, oracles aside, stand out; the rest are thin grey lines without bands."
        )
    if paired:
        words += (
            " Seeds share their splits and streams, so the upper bands, which are mostly the seeds' common"
            " ups and downs, may overlap where configurations differ: the lower axes show each configuration"
            " less the reference with the same seed. Each band is an interval by itself; what may be claimed"
            " of the last session is in the table."
        )
    return words
