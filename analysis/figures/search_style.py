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
from matplotlib.lines import Line2D

from analysis.drawing import Drawing
from analysis.figures import names, style

OBJECTIVE = "validation accuracy (%)"
FINISHED, STOPPED = style.LOOKS[0], style.LOOKS[1]


@dataclass(frozen=True)
class Search:
    """The samples that were scored, in percent, and which of them ran to their end."""

    name: str
    study: optuna.Study
    finished: list[bool]  # by sample
    lost: int  # failed, or interrupted

    def words(self) -> str:
        stopped = self.finished.count(False)
        text = f"{len(self.finished)} samples"
        if stopped:
            text += (
                f", {stopped} of them stopped early (their score is that at the time, and might still have"
                " risen)"
            )
        return text + (
            f"; {self.lost} more failed or were interrupted and are not shown" if self.lost else ""
        )


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
    return Drawing(name, "hyperparameters", f"{title}: {search.name}", caption, figure)


def marks(points: Any, finished: list[bool], width: float = 1.3) -> None:
    """Full marks for samples that ran to their end, open ones for those stopped early."""
    points.set_array(None)
    points.set_facecolor([FINISHED.color if done else "white" for done in finished])
    points.set_edgecolor([FINISHED.color if done else STOPPED.color for done in finished])
    points.set_linewidth(width)
    points.set_sizes([26])


def entries(search: Search) -> tuple[list[Line2D], list[str]]:
    """A legend's, for the marks."""
    common: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 5}
    entries = [(Line2D([], [], color=FINISHED.color, **common), "ran to its end")]
    if not all(search.finished):
        open_mark = Line2D([], [], markerfacecolor="white", markeredgecolor=STOPPED.color, **common)
        entries.append((open_mark, "stopped early"))
    return [handle for handle, _ in entries], [label for _, label in entries]


def sized(axes: Axes, inches: tuple[float, float], layout: Any = "constrained") -> Figure:
    """The figure of some axes, at our size."""
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    figure.set_layout_engine(layout)
    figure.set_size_inches(*inches)
    return figure
