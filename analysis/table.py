"""A table once, for people and for programs: cells as they are shown, and the numbers behind them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd


@dataclass(frozen=True)
class Cell:
    """What is shown, what it sorts by, and whether it stands out."""

    text: str
    value: float | str | None = None
    best: bool = False
    mark: str = ""  # an asterisk: differs from the reference row


@dataclass(frozen=True)
class Table:
    """One table of the report."""

    name: str  # of its files
    section: str  # of the report
    title: str
    caption: str
    columns: list[str]
    rows: list[list[Cell]]
    numbers: pd.DataFrame  # what the cells were made of, for the CSV file
    notes: list[str] = field(default_factory=list)
    reference: int | None = None  # the row that the others are compared with
