"""Define the samples of a search, and restyle Optuna's figures."""

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
    """The scored samples of a search, in percent."""

    name: str
    study: optuna.Study
    failed: int
    others: int = 0  # searches of the same study that are not drawn

    def words(self) -> str:
        """Return the number of samples in words."""
        text = f"{len(self.study.trials)} samples"
        return text + (f" ({self.failed} failed, not shown)" if self.failed else "")


@contextmanager
def our_style() -> Iterator[None]:
    """Replace the style `ggplot`, which Optuna sets globally, by ours while Optuna draws."""
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
    """Return the figure with its title and caption, and close it in pyplot."""
    plt.close(figure)
    name = names.slug("search", kind, search.name)
    if search.others:
        caption += f" Not drawn: {search.others} more searches of this study."
    return Drawing(name, "hyperparameters", f"{title}: {search.name}", caption, figure)


def marks(points: Any) -> None:
    """Draw one mark per sample in our colour."""
    points.set_array(None)
    points.set_facecolor(SAMPLE.color)
    points.set_edgecolor(SAMPLE.color)
    points.set_sizes([26])


def sized(axes: Axes, inches: tuple[float, float], layout: Any = "constrained") -> Figure:
    """Return the figure of `axes`, resized to `inches`."""
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    figure.set_layout_engine(layout)
    figure.set_size_inches(*inches)
    return figure
