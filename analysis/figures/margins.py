"""Draw the margin of one method over the best other method for each N and K."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.comparisons import Analysis
from analysis.drawing import Drawing
from analysis.figures import names, style, summary
from analysis.inference import AHEAD, BEHIND
from analysis.margins import Margin, Margins, as_grid, margins
from analysis.words import points

MARKS = {AHEAD: " ▲", BEHIND: " ▼"}
HEAT = "RdBu"  # red is behind, blue is ahead, and white is no margin


def draw(analysis: Analysis) -> Iterator[Drawing]:
    """Yield a heat map for each dataset in which N, K and the method vary."""
    for found in margins(analysis):
        yield _map(found)


@style.styled
def _map(found: Margins) -> Drawing:
    ways, shots, places = as_grid(found)
    values, texts = np.full(places.shape, np.nan), np.full(places.shape, "not run", dtype=object)
    for place, index in np.ndenumerate(places):
        if index >= 0:
            values[place] = 100 * found.cells[index].lead.mean
            texts[place] = _text(found.cells[index])
    figure, ((axes,),) = style.grid(1, 1, 1.3 + 0.72 * len(ways), width=max(3.8, 1.2 + 1.5 * len(shots)))
    most = max(float(np.nanmax(np.abs(values))), 1e-9)
    image = axes.imshow(np.ma.masked_invalid(values), cmap=HEAT, vmin=-most, vmax=most, aspect="auto")
    for (row, column), text in np.ndenumerate(texts):
        strong = abs(values[row, column]) > 0.6 * most
        color = "white" if strong else style.INK
        axes.text(column, row, text, ha="center", va="center", color=color, fontsize=7.5)
    style.bare(axes)
    axes.set_xticks(range(len(shots)), map(str, shots))
    axes.set_yticks(range(len(ways)), map(str, ways))
    axes.set_xlabel("K, labelled nodes per new class")
    axes.set_ylabel("N, new classes per session")
    figure.colorbar(image, ax=axes, label="margin (points)", shrink=0.8)
    leaks = summary.any_leak(found.runs)
    style.heading(figure, summary.with_leak(f"{found.label} minus the best other: {found.where}", leaks))
    caption = (
        f"Each cell shows the margin with its 95 % interval, and the best other method. ▲ means ahead of all"
        f" others; ▼ means behind at least one, not always the one that is named. Values are means over"
        f" {summary.seeds_of(found.runs)} per configuration. {found.words}"
    )
    title = f"Margins over N and K: {found.where}"
    return Drawing(names.slug("margins", found.where), "settings", title, caption, figure, leaks)


def _text(cell: Margin) -> str:
    mean, *limits = points(cell.lead).split(" ", 1)
    return "\n".join([mean + MARKS.get(cell.verdict, ""), *limits, style.wrapped(cell.rival, 18)])
