"""Render the report as one HTML file that includes all it needs and loads nothing from a network."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis.tables.table import Cell, Table

TEMPLATES = Path(__file__).parent / "templates"
# In the order of the page. The question of a study comes first: what its own design varies.
SECTIONS = {
    "landing": "Rank among the references",
    "ablation": "Effects of settings",
    "settings": "N-way and K-shot",
    "search": "Hyperparameter search",
    "hyperparameters": "Hyperparameters",
    "datasets": "Ranking over datasets",
    "protocol": "Strict and released protocol",
    "comparison": "Comparison of methods",
    "ages": "Old and new nodes",
    "curves": "Accuracy by session",
    "published": "Comparison with the paper",
    "embeddings": "Embeddings",
    "forgetting": "Forgetting",
    "attention": "Attention weights",
    "cost": "Cost",
}
TABLES_FIRST = ("comparison", "search")  # here a table is the answer
FOLDED = ("forgetting", "attention", "cost")  # sections that few readers need
ABBREVIATIONS = {  # explained in a section whose figures or tables name them
    "GPIL": "training on pseudo-incremental episodes (graph pseudo incremental learning)",
    "NLA": "attention over the support nodes of a class (node-level attention)",
    "TLA": "attention over tasks (task-level attention)",
}
EXPLAINED_IN = "ablation"
TABLE_FILES = {"csv": "CSV", "md": "Markdown", "tex": "LaTeX"}
FINDINGS = 6  # further findings are folded
FEW_TABLES = 6  # sections with more tables, each of one row, are folded
CAPTION = 200  # characters of a caption; the sentences behind them are folded
NOTICE_LINES = 5  # further lines of a notice are folded
FILTER_ROWS = 6  # tables with more rows get a filter
TALL_ROWS = 40  # tables with more rows scroll under a fixed header
SHORT_ROWS = 12  # tables with at most these rows are not split between printed pages
SMALL_TYPE = 95  # characters: wider tables are printed in small type
SIDEWAYS = 130  # characters: wider tables are printed on landscape pages
PHONE_LABEL = 14  # characters: longer labels in the first column wrap on phones
WORDS = 24  # characters: longer texts in cells wrap
LONG_LABEL = 36  # characters: longer labels in the first column wrap everywhere
FIGURE_SCALE = 1.2  # scales the 9 pt type of figures to the size of the type in tables
TALL_FIGURE = 0.8  # height / width: two flatter figures fit on a printed page


@dataclass(frozen=True)
class Fact:
    """One line of the facts at the top of the page."""

    name: str
    value: str


@dataclass(frozen=True)
class Picture:
    """A saved figure."""

    name: str
    section: str
    title: str
    caption: str
    svg: Path
    files: list[Path]
    leaks: bool = False


@dataclass(frozen=True)
class Notice:
    """A warning to read before the results."""

    title: str
    lines: list[str]


@dataclass(frozen=True)
class Pasted:
    """A paragraph to copy, and the citations that its numbers point to."""

    title: str
    paragraph: str
    citations: list[str]


@dataclass(frozen=True)
class Page:
    """The content of a page. Titles and findings use the short forms of phrases in `shorter`."""

    title: str
    facts: Sequence[Fact]
    findings: Sequence[str]
    notices: Sequence[Notice]
    tables: Sequence[Table]
    command: str  # that made the page
    leaks: bool  # some results come from a protocol that leaks
    pictures: Sequence[Picture] = ()
    data: str = ""  # the name of the file with all numbers
    questions: Sequence[str] = ()  # below the title: what the user asks
    setting: str = ""
    seeds: str = ""
    shorter: Mapping[str, str] = field(default_factory=dict)
    pasted: Sequence[Pasted] = ()
    explorer: str = ""  # the name of the page to explore, if there is one


@dataclass(frozen=True)
class Link:
    """A link to a file in the folder of the page."""

    href: str
    text: str


@dataclass(frozen=True)
class _Figure:
    """A figure as the template shows it."""

    picture: Picture
    number: int
    anchor: str
    leaks: bool
    source: str
    width: int
    height: int
    large: str
    links: list[Link]

    label = "Figure"
    badge = ""

    @property
    def title(self) -> str:
        return self.picture.title

    @property
    def caption(self) -> str:
        return self.picture.caption

    @property
    def classes(self) -> str:
        return "picture tall" if self.height > TALL_FIGURE * self.width else "picture"


@dataclass(frozen=True)
class _Column:
    """How a column of a table is sorted and aligned."""

    name: str
    numeric: bool  # sorted by number
    right: bool  # aligned to the right
    extra: bool  # not shown on phones
    words: bool  # long text that may wrap

    @property
    def classes(self) -> str:
        """Return the CSS classes of the column."""
        return " ".join(
            css for css, holds in {"n": self.right, "extra": self.extra, "words": self.words}.items() if holds
        )


@dataclass(frozen=True)
class _Grid:
    """A table as the template shows it."""

    table: Table
    number: int
    anchor: str
    leaks: bool
    columns: list[_Column]
    links: list[Link]

    label = "Table"

    @property
    def title(self) -> str:
        return self.table.title

    @property
    def caption(self) -> str:
        return self.table.caption

    @property
    def badge(self) -> str:
        return self.table.badge

    @property
    def filtered(self) -> bool:
        return len(self.table.rows) > FILTER_ROWS

    @property
    def classes(self) -> str:
        """Return the CSS classes for the shape of the table."""
        rows, width = len(self.table.rows), _width(self.table)
        label = max((len(row[0].text) for row in self.table.rows), default=0)
        shape = {
            "tall": rows > TALL_ROWS,
            "short": rows <= SHORT_ROWS,
            "small": SMALL_TYPE < width <= SIDEWAYS,
            "sideways": width > SIDEWAYS,
            "labelled": label > PHONE_LABEL,
            "long": label > LONG_LABEL,
        }
        return " ".join(["table", *(name for name, holds in shape.items() if holds)])


@dataclass(frozen=True)
class _Section:
    """A heading with its figures and tables."""

    name: str
    heading: str
    figures: list[_Figure]
    grids: list[_Grid]

    @property
    def items(self) -> list[_Figure | _Grid]:
        """Return figures and tables in the order of the page."""
        if self.name in TABLES_FIRST:
            return [*self.grids, *self.figures]
        return [*self.figures, *self.grids]

    @property
    def folded(self) -> bool:
        """Return whether few readers need this section: also many tables of one row, as for N and K."""
        small = len(self.grids) > FEW_TABLES and all(len(grid.table.rows) == 1 for grid in self.grids)
        return self.name in FOLDED or small

    @property
    def about(self) -> str:
        """Return what the abbreviations in the captions and tables of a section mean."""
        if self.name != EXPLAINED_IN:
            return ""
        cells = [cell.text for grid in self.grids for row in grid.table.rows for cell in row]
        columns = [name for grid in self.grids for name in grid.table.columns]
        shown = " ".join([*(item.title + item.caption for item in self.items), *columns, *cells])
        return " ".join(f"{name}: {words}." for name, words in ABBREVIATIONS.items() if name in shown)


def render(page: Page) -> str:
    """Return the whole page as HTML."""
    style, script, shorter = asset("style.css"), asset("script.js"), page.shorter
    tables = [replace(table, title=shortened(table.title, shorter)) for table in page.tables]
    pictures = [replace(picture, title=shortened(picture.title, shorter)) for picture in page.pictures]
    asked = vars(page) | {"findings": [shortened(finding, shorter) for finding in page.findings]}
    return (
        environment()
        .get_template("report.html.jinja")
        .render(
            **asked | {"data": Link(quote(page.data), page.data), "explorer": quote(page.explorer)},
            shown_findings=FINDINGS,
            notice_lines=NOTICE_LINES,
            sections=list(_sections(tables, pictures, page.leaks)),
            style=style,
            script=script,
            policy=policy(style, script),
        )
    )


def environment() -> Environment:
    """Return the environment of all templates, which escapes what it inserts."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["sort_key"] = sort_key
    made.globals["caption_parts"] = caption_parts
    made.filters["prose"] = unbroken
    return made


def asset(name: str) -> Markup:
    """Return a style or a script to insert as it is."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def policy(style: str, script: str) -> str:
    """Return a content security policy that allows only this style, this script and embedded pictures."""
    rules = {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": _source_hash(style),
        "script-src": _source_hash(script),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _source_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _sections(tables: Sequence[Table], pictures: Sequence[Picture], leaks: bool) -> Iterator[_Section]:
    """Yield the sections that have figures or tables, which are numbered in the order of the page."""
    items: list[Table | Picture] = [*tables, *pictures]
    for item in items:
        if item.section not in SECTIONS:
            known = ", ".join(SECTIONS)
            raise ValueError(f"{item.name}: no section {item.section!r}; expected one of {known}.")
    figures_before = grids_before = 0
    for name, heading in SECTIONS.items():
        its_pictures = [picture for picture in pictures if picture.section == name]
        its_tables = [table for table in tables if table.section == name]
        figures = [_figure(p, number, leaks) for number, p in enumerate(its_pictures, figures_before + 1)]
        grids = [_grid(t, number, leaks) for number, t in enumerate(its_tables, grids_before + 1)]
        figures_before += len(figures)
        grids_before += len(grids)
        if figures or grids:
            yield _Section(name, heading, figures, grids)


def _figure(picture: Picture, number: int, leaks: bool) -> _Figure:
    content = picture.svg.read_bytes()
    width, height = svg_size(content)
    return _Figure(
        picture,
        number,
        anchor=_anchor("figure", picture.name),
        leaks=leaks and picture.leaks,
        source=f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}",
        width=round(FIGURE_SCALE * width),
        height=round(FIGURE_SCALE * height),
        large=_href("figures", picture.svg.name),
        links=[Link(_href("figures", path.name), path.suffix[1:].upper()) for path in picture.files],
    )


def _grid(table: Table, number: int, leaks: bool) -> _Grid:
    return _Grid(
        table,
        number,
        anchor=_anchor("table", table.name),
        leaks=leaks and table.leaks,
        columns=[
            _column(name, [row[index] for row in table.rows], name in table.extra)
            for index, name in enumerate(table.columns)
        ],
        links=[Link(_href("tables", f"{table.name}.{end}"), text) for end, text in TABLE_FILES.items()],
    )


def _anchor(kind: str, name: str) -> str:
    return f"{kind}-{re.sub(r'[^A-Za-z0-9_-]+', '-', name)}"


def _href(folder: str, name: str) -> str:
    return f"{folder}/{quote(name)}"


def shortened(text: str, shorter: Mapping[str, str]) -> str:
    """Return `text` with the short forms of all phrases in `shorter`, of which one may begin another."""
    if not shorter:
        return text
    phrases = "|".join(re.escape(phrase) for phrase in sorted(shorter, key=len, reverse=True))
    return re.sub(phrases, lambda found: shorter[found.group()], text)


def unbroken(text: str) -> str:
    """Return `text` with no-break spaces between numbers, their intervals and units."""
    return re.sub(r" (?=[±%])|(?<=±) ", "\N{NO-BREAK SPACE}", text)


def caption_parts(caption: str) -> tuple[str, str]:
    """Return the first sentences of a caption, and the others."""
    sentences = re.split(r"(?<=[.!?]) (?=[A-Z\"])", caption)
    length, count = len(sentences[0]), 1
    while count < len(sentences) and length + len(sentences[count]) < CAPTION:
        length += 1 + len(sentences[count])
        count += 1
    return " ".join(sentences[:count]), " ".join(sentences[count:])


def _width(table: Table) -> int:
    """Return the width of a table in characters, with two between columns."""
    columns = zip(*([Cell(name) for name in table.columns], *table.rows), strict=True)
    return sum(max(len(cell.text + cell.mark) for cell in column) + 2 for column in columns)


def _column(name: str, cells: Sequence[Cell], extra: bool) -> _Column:
    """Return how to sort and align a column; it is numeric if all known values are numbers."""
    known = [cell for cell in cells if cell.value is not None]
    numeric = bool(known) and all(isinstance(cell.value, Real) for cell in known)
    digits = any(re.search(r"\d", cell.text) for cell in known)
    words = not numeric and any(len(cell.text) > WORDS for cell in cells)
    return _Column(name, numeric, numeric and digits, extra, words)


def sort_key(cell: Cell, numeric: bool) -> str | None:
    """Return the sort key of `cell`, or None for a missing number, which comes last in both directions."""
    value: Any = cell.value
    if not numeric:
        return cell.text if value is None else str(value)
    return f"{float(value):.9g}" if value is not None and math.isfinite(value) else None


def svg_size(content: bytes) -> tuple[int, int]:
    """Return the width and height of an SVG picture in CSS pixels.

    With a known size, the page does not move while it loads.
    """
    opening = re.search(rb"<svg\b[^>]*>", content, re.DOTALL)
    text = opening.group().decode("utf-8", "replace") if opening else ""
    width, height = _pixels(text, "width"), _pixels(text, "height")
    if width is None or height is None:
        box = re.search(r"viewBox\s*=\s*[\"']([^\"']*)", text)
        numbers = [float(part) for part in re.split(r"[\s,]+", box.group(1).strip())] if box else []
        width, height = numbers[2:4] if len(numbers) == 4 else (640, 400)
    return round(width), round(height)


def _pixels(opening: str, attribute: str) -> float | None:
    found = re.search(rf"\s{attribute}\s*=\s*[\"']([\d.]+)(px|pt|in|mm|cm)?[\"']", opening)
    if not found:
        return None
    scale = {None: 1, "px": 1, "pt": 96 / 72, "in": 96, "mm": 96 / 25.4, "cm": 96 / 2.54}
    return float(found.group(1)) * scale[found.group(2)]
