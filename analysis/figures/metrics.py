"""Draw the ranks of configurations by each metric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import seaborn as sns

from analysis.comparisons import Analysis
from analysis.drawing import Drawing
from analysis.figures import names, style, summary
from analysis.frame import Panel
from analysis.tables import metric_ranks, metric_tables, order_words

FEWEST, MOST_ROWS = 3, 24  # configurations


def draw(analysis: Analysis) -> Iterator[Drawing]:
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
    called = names.shown(panel)
    figure, ((axes,),) = style.grid(1, 1, 1.5 + 0.27 * len(ranks))
    options: dict[str, Any] = {"cmap": f"{style.HEAT}_r", "annot_kws": {"fontsize": 8}, "cbar": False}
    sns.heatmap(ranks.rename(index=called), ax=axes, annot=True, fmt=".0f", **options)
    style.bare(axes)
    axes.set_xlabel("")
    axes.set_ylabel("")
    axes.set_yticklabels(axes.get_yticklabels(), rotation=0)
    axes.set_xticklabels(axes.get_xticklabels(), rotation=30, ha="right", rotation_mode="anchor")
    style.heading(figure, summary.heading(panel))
    caption = (
        f"Rank of each configuration by each metric, without oracles; 1 is the best. Ranks use means over"
        f" {summary.seeds_of(panel.runs)} at the last session, and over all sessions for average, forgetting"
        f" and BWT. They are not tested. {order_words(panel, tables)} Rows that change colour depend on the"
        f" metric.{summary.warning(panel)}{rest}"
    )
    title = f"Ranks by metric: {panel.title}"
    return Drawing(f"metric-ranks-{panel.slug}", "comparison", title, caption, figure, panel.leaks)
