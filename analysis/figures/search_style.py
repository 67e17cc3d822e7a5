"""What the plots of a search share: its samples, and Optuna's figures made to look like ours."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import matplotlib.style
import optuna
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.drawing import Drawing
from analysis.figures import names, style

OBJECTIVE = "validation accuracy (%)"
SAMPLE = style.LOOKS[0]


@dataclass(frozen=True)
class Search:
    """The samples that were scored, in percent."""

    name: str
    study: optuna.Study
    lost: int  # failed, or interrupted
    others: int = 0  # searches of the same study that are not drawn

    def words(self) -> str:
        text = f"{len(self.study.trials)} samples"
        return text + (f"; {self.lost} that failed or were interrupted are not shown" if self.lost else "")


@contextmanager
def our_style() -> Iterator[None]:
    """Optuna asks for the style `ggplot`, for good: it gets ours, for as long as it draws."""
    library: dict[str, Any] = matplotlib.style.library
    theirs = library["ggplot"]
    library["ggplot"] = style.RC
    try:
        with warnings.catch_warnings(), plt.rc_context(style.RC):
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        library["ggplot"] = theirs


def drawing_of(search: Search, kind: str, title: str, caption: str, figure: Figure) -> Drawing:
    """The figure with its words, out of pyplot's hands."""
    plt.close(figure)
    name = names.slug("search", kind, search.name)
    if search.others:
        caption += f" Not drawn: {search.others} more searches of this study."
    return Drawing(name, "hyperparameters", f"{title}: {search.name}", caption, figure)


def marks(points: Any) -> None:
    """One mark a sample, in our colour."""
    points.set_array(None)
    points.set_facecolor(SAMPLE.color)
    points.set_edgecolor(SAMPLE.color)
    points.set_sizes([26])


def sized(axes: Axes, inches: tuple[float, float], layout: Any = "constrained") -> Figure:
    """The figure of some axes, at our size."""
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    figure.set_layout_engine(layout)
    figure.set_size_inches(*inches)
    return figure
