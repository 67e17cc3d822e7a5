"""A table once, for people and for programs: cells as they are shown, and the numbers behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

ONE_COLUMN = 80  # letters, made a little smaller: a wider table is over both columns of a page


@dataclass(frozen=True)
class Cell:
    """What is shown, what it sorts by, and whether it stands out."""

    text: str
    value: float | str | None = None
    best: bool = False
    mark: str = ""  # an asterisk: differs from the reference row
    leaks: bool = False  # names a protocol that leaks


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
    leaks: bool = False  # some of its numbers were made by a protocol that leaks
    paper: Table | None = None  # what LaTeX gets instead: no wider than a column
    badge: str = ""  # beside its title: what its numbers are not


def save(table: Table, folder: Path) -> list[Path]:
    """As CSV with every number in full, as Markdown, and as LaTeX."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "csv": table.numbers.to_csv(index=False),
        "md": to_markdown(table),
        "tex": to_latex(table.paper or table),
    }
    paths = []
    for kind, text in texts.items():
        path = folder / f"{table.name}.{kind}"
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def to_markdown(table: Table) -> str:
    """A GitHub table, the best in bold."""
    rows = [[_shown(cell, _escape_markdown, "**{}**") for cell in row] for row in table.rows]
    header = [_escape_markdown(name) for name in table.columns]
    rule = ["--:" if _is_number(table, index) else "---" for index in range(len(header))]
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, rule, *rows)]
    return "\n\n".join([table.title, "\n".join(lines), *_said(table)]) + "\n"


def to_latex(table: Table) -> str:
    """A float for a document with booktabs and graphicx: no wider than a column, or than both."""
    rows = [[_shown(cell, escape_latex, r"\textbf{{{}}}") for cell in row] for row in table.rows]
    header = [escape_latex(name) for name in table.columns]
    alignment = "".join("r" if _is_number(table, index) else "l" for index in range(len(header)))
    caption = escape_latex(" ".join([f"{table.title}.", *_said(table)]))
    texts = [table.columns, *([cell.text for cell in row] for row in table.rows)]
    letters = sum(max(map(len, column)) + 2 for column in zip(*texts, strict=True))
    kind = "table*" if letters > ONE_COLUMN else "table"
    return "\n".join(
        [
            rf"\begin{{{kind}}}",
            r"\centering\footnotesize\setlength{\tabcolsep}{4pt}\setlength{\belowcaptionskip}{4pt}",
            rf"\caption{{{caption}}}",
            rf"\label{{tab:{table.name}}}",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            " & ".join(header) + r" \\",
            r"\midrule",
            *(" & ".join(cells) + r" \\" for cells in rows),
            r"\bottomrule",
            r"\end{tabular}}",
            rf"\end{{{kind}}}",
            "",
        ]
    )


def _said(table: Table) -> list[str]:
    """What stands under a table that is no part of a page."""
    return [*([f"{table.badge}."] if table.badge else []), table.caption, *table.notes]


def escape_latex(text: str) -> str:
    """Text as LaTeX takes it."""
    signs = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    signs |= {sign: "\\" + sign for sign in "&%$#_{}"}
    signs |= {"±": r"$\pm$", "«": "``", "»": "''", "†": r"\dag{}", "<": r"$<$", ">": r"$>$"}
    return "".join(signs.get(sign, sign) for sign in text)


def _escape_markdown(text: str) -> str:
    for sign in "\\|*<":
        text = text.replace(sign, "\\" + sign)
    return text


def _shown(cell: Cell, escape: Callable[[str], str], bold: str) -> str:
    text = escape(cell.text)
    return (bold.format(text) if cell.best and text else text) + escape(cell.mark)


def _is_number(table: Table, column: int) -> bool:
    return any(isinstance(row[column].value, (int, float)) for row in table.rows)
