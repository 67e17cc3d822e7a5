"""Define one style for all figures: readable at 720 pixels, in grey, and for colour-blind readers."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib
import numpy as np
from matplotlib import patheffects
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

WIDTH = 7.2  # inches: 720 pixels at 100 dots per inch
GREY = "#9a9a9a"
INK = "#222222"
HEAT = "viridis"  # lightness grows with the value
NEXT_TO_LEGEND = 46  # characters of a title that ends where the legend begins
ACCURACY = "accuracy (%)"
HALO = [patheffects.withStroke(linewidth=2.2, foreground="white")]  # for text over lines
RC: Any = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.edgecolor": "#666666",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "text.color": INK,
    "text.parse_math": False,  # names may have dollars in them
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "hatch.linewidth": 0.4,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.fonttype": "path",  # the same on machines without the font
    "svg.hashsalt": "hagmeta",
    "pdf.fonttype": 42,  # TrueType, as publishers ask for
}
styled = matplotlib.rc_context(RC)  # decorates functions that make a figure


@dataclass(frozen=True)
class Look:
    """The colour, dashes and marker that distinguish a line from the others."""

    color: str
    dash: Any
    marker: str
    width: float = 1.6

    def line(self) -> dict[str, Any]:
        size = 3.2 + self.width  # different sizes keep two lines visible where they coincide
        return {
            "color": self.color,
            "linestyle": self.dash,
            "marker": self.marker,
            "linewidth": self.width,
            "markersize": size,
            "markeredgecolor": "white",
            "markeredgewidth": 0.4,
        }


_DASHES: list[Any] = ["-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1, 1, 1, 1, 1))]
# Okabe and Ito's colours without yellow, which is hard to see on white; dark and light alternate.
_COLORS = ["#0072b2", "#e69f00", "#111111", "#cc79a7", "#009e73", "#56b4e9", "#d55e00", "#6f6f6f"]
# These are similar to the first ones, but with other markers and dashes.
_COLORS += ["#7a4b00", "#7d3c98", "#8fae00", "#00b5b5", "#1b3a8a", "#a50f37", "#b39ddb", "#4d7c3a"]
_MARKERS = ["o", "s", "^", "D", "v", "P", "X", "<", ">", "h", "*", "p", "d", "8", "H", "."]
LOOKS = [
    Look(color, _DASHES[index % len(_DASHES)], marker)
    for index, (color, marker) in enumerate(zip(_COLORS, _MARKERS, strict=True))
]


def looks(everyone: Sequence[str], chosen: Sequence[str]) -> dict[str, Look]:
    """Return a look per chosen label, by its position in the report; lines drawn later are thinner."""
    thick = np.linspace(2.6, 1.2, len(chosen)) if len(chosen) > 1 else [1.8]
    return {
        label: replace(LOOKS[everyone.index(label) % len(LOOKS)], width=float(width))
        for label, width in zip(chosen, thick, strict=True)
    }


def grid(rows: int, columns: int, height: float, width: float = WIDTH, **options: Any) -> tuple[Figure, Any]:
    """Return a figure and its axes (rows, columns); `height` is the height of a row in inches."""
    figure = Figure(figsize=(width, rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def wrapped(label: str, width: int = 26) -> str:
    """Return `label` wrapped at `width` characters."""
    return "\n".join(textwrap.wrap(label, width, break_long_words=True)) or label


def legend(figure: Figure, handles: Sequence[Artist], labels: Sequence[str], title: str = "") -> None:
    """Add a legend to the right of the axes, or below them if it is too large."""
    texts = [wrapped(label) for label in labels]
    tall = sum(0.15 * (text.count("\n") + 1.6) for text in texts) > figure.get_size_inches()[1]
    if tall or max(map(len, labels), default=0) > 56 or len(labels) > 12:
        legend_below(figure, handles, labels, columns=1, title=title)
        return
    words: dict[str, Any] = {"title": title or None, "alignment": "left", "labelspacing": 0.6}
    figure.legend(list(handles), texts, loc="outside right upper", handlelength=2.8, **words)


def legend_below(
    figure: Figure, handles: Sequence[Artist], labels: Sequence[str], columns: int = 2, title: str = ""
) -> None:
    """Add a legend in rows below the axes, and make the figure taller to fit it."""
    texts = [wrapped(label, 96 // columns) for label in labels]
    lines = [text.count("\n") + 1 for text in texts] + [1] * bool(title)
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + 0.18 * -(-sum(lines) // columns))
    words: dict[str, Any] = {"title": title or None, "alignment": "left", "ncols": columns}
    figure.legend(list(handles), texts, loc="outside lower left", handlelength=2.8, **words)


def heading(figure: Figure, text: str) -> None:
    """Add a title over all axes of `figure`."""
    letters = int(92 * figure.get_size_inches()[0] / WIDTH)
    figure.suptitle(wrapped(text, letters), fontsize=9.5, fontweight="bold", x=0.01, ha="left")


def handle(look: Look, **options: Any) -> Line2D:
    """Return the legend entry of a line."""
    return Line2D([], [], **{**look.line(), **options})


def interval(
    axes: Axes, x: Any, y: Any, low: Any, high: Any, *, horizontal: bool = False, **options: Any
) -> None:
    """Draw dots with intervals along x or y; only the dot if there is no interval."""
    x, y, low, high = map(np.atleast_1d, (x, y, low, high))
    center = x if horizontal else y
    spread = np.nan_to_num(np.array([center - low, high - center]))
    error = {"xerr": spread} if horizontal else {"yerr": spread}
    settings: dict[str, Any] = {"capsize": 2.5, "elinewidth": 1.2, **error, **options}
    axes.errorbar(x, y, **settings)


def whole_sessions(axes: Axes, last: int) -> None:
    """Set a tick per session, or fewer if there are many sessions."""
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, last + 1) if last / step <= 12)
    axes.set_xticks(range(0, last + 1, step))
    axes.set_xlim(-0.25, last + 0.25)
    axes.set_xlabel("session")


def heat_map(
    axes: Axes, values: np.ndarray, texts: np.ndarray, low: float, high: float, size: float = 8.0
) -> Any:
    """Draw cells (rows, columns) coloured by value, each with its text; NaN cells stay white."""
    if low == high:  # a colour bar needs a range
        low, high = low - 1, high + 1
    image = axes.imshow(np.ma.masked_invalid(values), cmap=HEAT, vmin=low, vmax=high, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        color = INK if np.isnan(value) or value > low + 0.6 * (high - low) else "white"
        axes.text(column, row, str(texts[row, column]), ha="center", va="center", color=color, fontsize=size)
    bare(axes)
    return image


def bare(axes: Axes) -> None:
    """Remove grid, frame and ticks, for axes with cells."""
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0)


@dataclass(frozen=True)
class Drawing:
    """One figure of the report."""

    name: str  # stem of its file names
    section: str  # a key of `analysis.page.page.SECTIONS`
    title: str
    caption: str  # what is plotted, the intervals, the number of seeds, and what to look for
    figure: Figure
    leaks: bool = False  # some of its data come from a protocol that leaks
