"""Draw our curves with the curves printed in the paper, one pair of axes per configuration."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.comparisons import Analysis
from analysis.drawing import Drawing
from analysis.figures import style, summary
from analysis.frame import Panel
from analysis.published import SOURCE, printed_curves

COLUMNS = 4
OURS, PAPER = style.LOOKS[0], style.LOOKS[2]


def draw(analysis: Analysis) -> Iterator[Drawing]:
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
