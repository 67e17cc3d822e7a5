"""Define tables with cells for people and numbers for programs, and write them as CSV, Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

ONE_COLUMN = 80  # characters: wider tables span both columns of a LaTeX page


@dataclass(frozen=True)
class Cell:
    """The text of a cell, the value that it sorts by, and its marks."""

    text: str
    value: float | str | None = None
    best: bool = False
    mark: str = ""  # an asterisk: differs from the reference row
    leaks: bool = False  # the cell names a protocol that leaks


@dataclass(frozen=True)
class Table:
    """One table of the report."""

    name: str  # stem of its file names
    section: str  # a key of `analysis.page.page.SECTIONS`
    title: str
    caption: str
    columns: list[str]
    rows: list[list[Cell]]
    numbers: pd.DataFrame  # the numbers behind the cells, for the CSV file
    notes: list[str] = field(default_factory=list)
    reference: int | None = None  # the row that the others are compared with
    reference_badge: str = "reference"  # next to the name of that row
    leaks: bool = False  # some of its numbers come from a protocol that leaks
    paper: Table | None = None  # a narrow version for LaTeX
    badge: str = ""  # a warning next to the title
    extra: tuple[str, ...] = ()  # columns that phones do not show


def save(table: Table, folder: Path) -> list[Path]:
    """Write `table` to `folder` as CSV with full precision, Markdown and LaTeX, and return the paths."""
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
    """Return a GitHub table with the best values in bold, and its caption and notes below."""
    rows = [[_shown(cell, _escape_markdown, "**{}**") for cell in row] for row in table.rows]
    header = [_escape_markdown(name) for name in table.columns]
    rule = ["--:" if _is_number(table, index) else "---" for index in range(len(header))]
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, rule, *rows)]
    return "\n\n".join([table.title, "\n".join(lines), *_below(table)]) + "\n"


def to_latex(table: Table) -> str:
    """Return a LaTeX float that needs booktabs and graphicx; wide tables span both columns."""
    rows = [[_shown(cell, _latex_cell, r"\textbf{{{}}}") for cell in row] for row in table.rows]
    header = [escape_latex(name) for name in table.columns]
    alignment = "".join("r" if _is_number(table, index) else "l" for index in range(len(header)))
    caption = escape_latex(" ".join([f"{table.title}.", *_below(table)]))
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


def _below(table: Table) -> list[str]:
    """Return the text below a table in Markdown and LaTeX: badge, caption and notes."""
    return [*([f"{table.badge}."] if table.badge else []), table.caption, *table.notes]


def escape_latex(text: str) -> str:
    """Return `text` with LaTeX escapes and paired quotes."""
    signs = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    signs |= {sign: "\\" + sign for sign in "&%$#_{}"}
    signs |= {"±": r"$\pm$", "†": r"\dag{}", "<": r"$<$", ">": r"$>$"}
    escaped = "".join(signs.get(sign, sign) for sign in text)
    return re.sub(r'"([^"]*)"', r"``\1''", escaped)


def _latex_cell(text: str) -> str:
    """Return `text` with LaTeX escapes, and with minus signs in place of hyphens before numbers."""
    return re.sub(r"(?<!\w)-(?=\d)", "$-$", escape_latex(text))


def _escape_markdown(text: str) -> str:
    for sign in "\\|*<":
        text = text.replace(sign, "\\" + sign)
    return text


def _shown(cell: Cell, escape: Callable[[str], str], bold: str) -> str:
    text = escape(cell.text)
    return (bold.format(text) if cell.best and text else text) + escape(cell.mark)


def _is_number(table: Table, column: int) -> bool:
    return any(isinstance(row[column].value, (int, float)) for row in table.rows)
