"""Draw methods: ranks by metric, cost, and differences from the references."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import seaborn as sns
from matplotlib.ticker import LogLocator

from analysis.comparisons import Analysis
from analysis.data.labels import slug
from analysis.data.results import Panel
from analysis.figures import style, summary
from analysis.figures.style import Drawing
from analysis.references.place import Placed, Standing
from analysis.references.tables import SEE
from analysis.statistics.inference import BETTER, EQUIVALENT, WORSE
from analysis.tables.cost import ABOUT, charged, front, machine
from analysis.tables.panels import metric_ranks, metric_tables, over_sessions
from analysis.words import listed

FEWEST, MOST_ROWS = 3, 24  # configurations


def draw_metrics(analysis: Analysis) -> Iterator[Drawing]:
    """Yield ranks by metric for each setting with several methods."""
    panels = [panel for panel in analysis.panels if _drawn(panel)]
    chosen = summary.richest(panels, summary.MOST_PANELS)
    for panel in chosen:
        yield _ranks(panel, summary.left_out(len(chosen), len(panels)))


def _drawn(panel: Panel) -> bool:
    rivals = len(panel.labels) - len(panel.oracles)
    return "method" in panel.varied() and FEWEST <= rivals <= MOST_ROWS


@style.styled
def _ranks(panel: Panel, rest: str) -> Drawing:
    tables = metric_tables(panel)
    ranks = metric_ranks(panel, tables).dropna(axis=1, how="all").sort_values("macro accuracy")
    called = summary.shown(panel)
    figure, ((axes,),) = style.grid(1, 1, 1.5 + 0.27 * len(ranks))
    options: dict[str, Any] = {"cmap": f"{style.HEAT}_r", "annot_kws": {"fontsize": 8}, "cbar": False}
    sns.heatmap(ranks.rename(index=called), ax=axes, annot=True, fmt=".0f", **options)
    style.bare(axes)
    axes.set_xlabel("")
    axes.set_ylabel("")
    axes.set_yticklabels(axes.get_yticklabels(), rotation=0)
    axes.set_xticklabels(axes.get_xticklabels(), rotation=30, ha="right", rotation_mode="anchor")
    style.heading(figure, summary.heading(panel))
    oracles = ", without oracles" if panel.oracles else ""
    caption = (
        f"Rank of each configuration by each metric{oracles}; 1 is the best. Ranks use means over"
        f" {summary.seeds_of(panel.runs)} at the last session, and over all sessions for"
        f" {listed(over_sessions(tables))}. They are not tested. Rows that change colour depend on the"
        f" metric.{summary.warning(panel)}{rest}"
    )
    title = f"Ranks by metric: {panel.title}"
    return Drawing(f"metric-ranks-{panel.slug}", "comparison", title, caption, figure, panel.leaks)


MOST_NAMED = 10  # with more configurations, only three are named


def draw_cost(analysis: Analysis) -> Iterator[Drawing]:
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
    called, looks = summary.shown(panel), style.looks(panel.everyone, chosen)
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


VERDICT_LOOKS = {BETTER: ("#0072b2", "o"), EQUIVALENT: ("#111111", "s"), WORSE: ("#d55e00", "v")}
OPEN = (style.GREY, "D")  # inconclusive or not tested
ROW = 0.19  # inches


def draw_against(placed: Placed) -> Iterator[Drawing]:
    """Yield a figure per method and graph."""
    for standing in placed.standings:
        yield _differences(standing, placed)


@style.styled
def _differences(standing: Standing, placed: Placed) -> Drawing:
    rivals = standing.rivals[::-1]  # the highest at the top
    figure, ((axes,),) = style.grid(1, 1, 1.0 + ROW * len(rivals))
    margin = 100 * placed.analysis.margin
    axes.axvspan(-margin, margin, color="#f0f0f0", zorder=0, linewidth=0)
    axes.axvline(0, color=style.INK, linewidth=0.9, zorder=1)
    for row, label in enumerate(rivals):
        test = standing.tests[label]
        color, marker = VERDICT_LOOKS.get(test.verdict, OPEN)
        mean, low, high = (100 * value for value in (test.mean, test.low, test.high))
        axes.plot([low, high], [row, row], color=color, linewidth=1.4)
        axes.plot([mean], [row], marker, color=color, markersize=5)
    axes.set_yticks(range(len(rivals)), rivals)
    axes.set_ylim(-0.7, len(rivals) - 0.3)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"{style.wrapped(standing.label, 60)} minus the reference (points)")
    axes.set_title(standing.panel.title)
    caption = (
        f"Each row is {standing.label} minus one reference at the last session, with its interval. Blue dots"
        " are significantly better, black squares equivalent, orange triangles significantly worse, and grey"
        " diamonds inconclusive or not tested. The highest reference is at the top. The"
        f" grey band is the margin of {margin:g} point{'s' * (margin != 1)}. {SEE}"
    )
    title = f"{standing.label} minus each reference: {standing.panel.title}"
    return Drawing(slug("against", standing.label, standing.dataset), "comparison", title, caption, figure)
