"""Define what a figure module returns: the figure, its title and its caption."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """One figure of the report."""

    name: str  # stem of its file names
    section: str  # a key of `analysis.page.SECTIONS`
    title: str
    caption: str  # what is plotted, the intervals, the number of seeds, and what to look for
    figure: Figure
    leaks: bool = False  # some of its data come from a protocol that leaks
