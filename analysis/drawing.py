"""What a figure module hands over: the picture, and the words that go with it."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """One figure of the report."""

    name: str  # of its files
    section: str  # of the report
    title: str
    caption: str  # what is shown and over how many seeds; what a reader should look for
    figure: Figure
    leaks: bool = False  # some of what it shows was made by a protocol that leaks
