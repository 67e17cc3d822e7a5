"""Draw accuracy at the last session against seconds per run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from matplotlib.ticker import LogLocator

from analysis.comparisons import Analysis
from analysis.cost import ABOUT, charged, front, machine
from analysis.drawing import Drawing
from analysis.figures import names, style, summary
from analysis.frame import Panel

MOST_NAMED = 10  # with more configurations, only three are named


def draw(analysis: Analysis) -> Iterator[Drawing]:
    """Yield a figure per setting with one device and pack size; each configuration is a point."""
    panels, runs = [panel for panel in analysis.panels if _comparable(panel)], charged(analysis.results.runs)
    chosen = summary.richest(panels, summary.MOST_PANELS)
    for panel in chosen:
        panel = replace(panel, runs=runs[runs["run"].isin(panel.runs["run"])])
        yield _points(panel, summary.left_out(len(chosen), len(panels)))


def _comparable(panel: Panel) -> bool:
    same = all(panel.runs[key].nunique(dropna=False) == 1 for key in ("device", "seeds_in_pack"))
    return (
        same and not summary.searched(panel) and panel.runs["device"].notna().all() and len(panel.labels) > 1
    )


@style.styled
def _points(panel: Panel, rest: str) -> Drawing:
    accuracy = summary.estimates(panel.runs, ["label"], "last")
    seconds = panel.runs.groupby("label")["seconds"].mean()
    crowded = len(accuracy) > MOST_NAMED
    rivals = [label for label in panel.labels if label not in panel.oracles] or panel.labels
    pareto = front(seconds[rivals], accuracy["mean"][rivals])
    roles = {pareto[0]: "cheapest", pareto[-1]: "highest", panel.reference: "reference"}
    chosen = [label for label in panel.labels if not crowded or label in roles]
    figure, ((axes,),) = style.grid(1, 1, 3.6)
    if crowded:
        rest_of = accuracy.index.difference(chosen)
        axes.plot(seconds[rest_of], accuracy["mean"][rest_of], "o", color=style.GREY, markersize=3)
    called, looks = names.shown(panel), style.looks(panel.everyone, chosen)
    for label, look in looks.items():
        point = accuracy.loc[label]
        options: dict[str, Any] = {"fmt": look.marker, "color": look.color, "markersize": 6.5, "alpha": 0.9}
        style.interval(axes, seconds[label], point["mean"], point["low"], point["high"], **options)
    steps: dict[str, Any] = {"color": style.INK, "linewidth": 0.9, "linestyle": (0, (3, 2)), "zorder": 1}
    axes.step(seconds[pareto], accuracy["mean"][pareto], where="post", **steps)
    if seconds.max() > 8 * seconds.min():
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
    axes.set_xlabel("seconds per run")
    axes.set_ylabel("accuracy at the last session (%)")
    axes.set_title(style.wrapped(summary.heading(panel), style.NEXT_TO_LEGEND))
    words = [called[label] + (f" ({roles[label]})" if crowded else "") for label in looks]
    style.legend(
        figure, [style.handle(look, linestyle="none", markersize=6.5) for look in looks.values()], words
    )
    caption = (
        f"Accuracy at the last session against seconds per run ({machine(panel)})."
        f" {summary.band_words(panel.runs, 'bars')} Up and to the left is better. The dashed line is the"
        " Pareto front without oracles: no other configuration is both cheaper and higher on average."
        f"{' Grey dots are the other configurations.' if crowded else ''} {ABOUT}"
        f"{summary.warning(panel)}{rest}"
    )
    title = f"Accuracy and cost: {panel.title}"
    return Drawing(f"cost-{panel.slug}", "cost", title, caption, figure, panel.leaks)
