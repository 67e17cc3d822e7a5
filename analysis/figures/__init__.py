"""Draw the figures of a report. Each module draws nothing if the results have no data for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt

from analysis.comparisons import Analysis
from analysis.drawing import Drawing
from analysis.figures import (
    ablation,
    cost,
    curves,
    margins,
    matrix,
    metrics,
    over_datasets,
    protocol,
    published,
    search,
    sensitivity,
    settings,
    tradeoff,
    tsne,
)
from analysis.figures.style import RC

__all__ = ["Drawing", "draw_all", "save"]
MODULES = (
    *(
        curves,
        ablation,
        over_datasets,
        metrics,
        settings,
        margins,
        sensitivity,
        search,
        matrix,
        tradeoff,
        protocol,
        published,
        cost,
    ),
    tsne,
)
PIXELS_PER_INCH = 200


def draw_all(analysis: Analysis) -> Iterator[Drawing]:
    """Yield every figure that `analysis` has data for, in the order of the report."""
    for module in MODULES:
        yield from module.draw(analysis)


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
