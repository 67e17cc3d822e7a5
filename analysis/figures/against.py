"""Draw the differences of one method from every reference, with their intervals."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.compare import Placed, Standing
from analysis.compare_tables import SEE
from analysis.drawing import Drawing
from analysis.figures import style
from analysis.inference import AHEAD, BEHIND, EQUIVALENT
from analysis.labels import slug

LOOKS = {AHEAD: ("#0072b2", "o"), EQUIVALENT: ("#111111", "s"), BEHIND: ("#d55e00", "v")}
OPEN = (style.GREY, "D")  # undecided or not tested
ROW = 0.19  # inches


def draw(placed: Placed) -> Iterator[Drawing]:
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
        color, marker = LOOKS.get(test.verdict, OPEN)
        mean, low, high = (100 * value for value in (test.mean, test.low, test.high))
        axes.plot([low, high], [row, row], color=color, linewidth=1.4)
        axes.plot([mean], [row], marker, color=color, markersize=5)
    axes.set_yticks(range(len(rivals)), rivals)
    axes.set_ylim(-0.7, len(rivals) - 0.3)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"{style.wrapped(standing.label, 60)} minus the reference (points)")
    axes.set_title(standing.panel.title)
    caption = (
        f"Each row is {standing.label} minus one reference at the last session, with Student's 95 % interval."
        " Intervals are not corrected. Blue dots are ahead, black squares equivalent, orange triangles"
        " behind, and grey diamonds undecided or not tested. The highest reference is at the top. The"
        f" grey band is the margin of {margin:g} point{'s' * (margin != 1)}. {SEE}"
    )
    title = f"{standing.label} minus each reference: {standing.panel.title}"
    return Drawing(slug("against", standing.label, standing.dataset), "comparison", title, caption, figure)
