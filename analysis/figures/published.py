"""Our curves beside the paper's printed ones: small axes, one a configuration that both have."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.drawing import Drawing
from analysis.figures import style, summary
from analysis.frame import Panel, Results
from analysis.published import SOURCE, printed_curves

COLUMNS = 4
OURS, PAPER = style.LOOKS[0], style.LOOKS[2]


def draw(results: Results) -> Iterator[Drawing]:
    """A figure for each setting that the paper printed numbers for."""
    for panel in results.panels():
        curves = printed_curves(panel)
        if curves:
            yield _beside(panel, curves)


@style.styled
def _beside(panel: Panel, curves: dict[str, dict[int, float]]) -> Drawing:
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
        f"Beside the paper: {panel.title}",
        f"{summary.band_words(panel.runs)} The black lines are the numbers that {SOURCE}, printed, made by"
        f" code that leaks as the released protocol does; ours are under {protocol}.{summary.warning(panel)}",
        figure,
        leaks=True,  # the paper's
    )
