"""Draw the figures of a report. Each function draws nothing if the results have no data for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt

from analysis.comparisons import Analysis
from analysis.figures import (
    ablation,
    curves,
    forgetting,
    methods,
    over_datasets,
    protocol,
    search,
    sensitivity,
    settings,
    tsne,
)
from analysis.figures.style import RC, Drawing

__all__ = ["Drawing", "draw_all", "save"]
FIGURES: Mapping[str, Callable[[Analysis], Iterator[Drawing]]] = {  # in the order of a section
    "curves": curves.draw,
    "ablation": ablation.draw,
    "over_datasets": over_datasets.draw,
    "metrics": methods.draw_metrics,
    "settings": settings.draw,
    "margins": settings.draw_margins,
    "sensitivity": sensitivity.draw,
    "search": search.draw,
    "matrix": forgetting.draw_matrix,
    "tradeoff": forgetting.draw_tradeoff,
    "protocol": protocol.draw,
    "published": curves.draw_published,
    "cost": methods.draw_cost,
    "tsne": tsne.draw,
}
PIXELS_PER_INCH = 200


def draw_all(analysis: Analysis) -> Iterator[Drawing]:
    """Yield every figure that `analysis` has data for, in the order of the report."""
    for draw in FIGURES.values():
        yield from draw(analysis)


def save(drawing: Drawing, folder: Path) -> dict[str, Path]:
    """Write the figure as SVG, PNG and PDF, close it, and return the paths by format.

    The same figure gives the same bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    figure = drawing.figure
    with matplotlib.rc_context(RC):
        figure.draw_without_rendering()
        figure.set_layout_engine(None)  # computed once, not for each format
        paths = {kind: folder / f"{drawing.name}.{kind}" for kind in ("svg", "png", "pdf")}
        figure.savefig(paths["svg"], metadata={"Date": None})
        figure.savefig(paths["png"], dpi=PIXELS_PER_INCH)
        figure.savefig(paths["pdf"], metadata={"CreationDate": None})
    plt.close(figure)
    return paths
