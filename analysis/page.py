"""The report as one HTML file: everything is inside, nothing is asked of a network."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis.table import Cell, Table

TEMPLATES = Path(__file__).parent / "templates"
SECTIONS = {
    "curves": "Accuracy by session",
    "ablation": "What each part is worth",
    "datasets": "Over datasets",
    "comparison": "The compared systems",
    "settings": "N-way and K-shot",
    "hyperparameters": "Hyperparameters",
    "attention": "What the attentions weigh",
    "forgetting": "What is forgotten when",
    "protocol": "Strict compared with released",
    "published": "Compared with the paper's numbers",
    "embeddings": "Embeddings",
    "cost": "Cost",
}
TABLE_FILES = {"csv": "CSV", "md": "Markdown", "tex": "LaTeX"}
NOTICE_LINES = 5  # of a notice, before the rest is folded away
FILTER_ROWS = 6  # a table with more gets a filter
TALL_ROWS = 40  # a table with more scrolls in its own frame, under its header
SHORT_ROWS = 12  # a table with no more is not cut between printed pages
SMALL_TYPE = 95  # characters: a wider table is printed in small type,
SIDEWAYS = 130  # and one wider than this on a page turned on its side
PHONE_LABEL = 14  # characters: a first column with a longer label is wrapped on phones,
LONG_LABEL = 36  # and one with a label longer than this everywhere
FIGURE_SCALE = 1.2  # brings the figures' 9 points to the size of the tables' type
TALL_FIGURE = 0.8  # height by width: a flatter figure is printed two to a page


@dataclass(frozen=True)
class Fact:
    """One line of what was run."""

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
    """Something a reader must know before believing a number."""

    title: str
    lines: list[str]


@dataclass(frozen=True)
class Link:
    """A file beside the page."""

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
    def classes(self) -> str:
        return "picture tall" if self.height > TALL_FIGURE * self.width else "picture"


@dataclass(frozen=True)
class _Column:
    """How a column of a table sorts and stands."""

    name: str
    numeric: bool  # sorts by number
    right: bool  # digits under digits


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
    def badge(self) -> str:
        return self.table.badge

    @property
    def filtered(self) -> bool:
        return len(self.table.rows) > FILTER_ROWS

    @property
    def classes(self) -> str:
        """What the style sheet must know of its shape."""
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
    """A heading, and what stands under it."""

    name: str
    heading: str
    figures: list[_Figure]
    grids: list[_Grid]


def render(
    *,
    title: str,
    facts: Sequence[Fact],
    findings: Sequence[str],
    notices: Sequence[Notice],
    tables: Sequence[Table],
    pictures: Sequence[Picture],
    command: str,
    data: str,
    leaks: bool,
) -> str:
    """The whole page as text."""
    style, script = _asset("style.css"), _asset("script.js")
    return (
        _environment()
        .get_template("report.html.jinja")
        .render(
            title=title,
            facts=facts,
            findings=findings,
            notices=notices,
            notice_lines=NOTICE_LINES,
            sections=list(_sections(tables, pictures, leaks)),
            command=command,
            data=Link(quote(data), data),
            leaks=leaks,
            style=style,
            script=script,
            policy=_policy(style, script),
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["sort_key"] = sort_key
    environment.filters["prose"] = unbroken
    return environment


def _asset(name: str) -> Markup:
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def _policy(style: str, script: str) -> str:
    """What the browser may load: this style, this script and the pictures inside the page."""
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
    """The sections that have something to show; figures and tables are numbered in the order of the page."""
    items: list[Table | Picture] = [*tables, *pictures]
    for item in items:
        if item.section not in SECTIONS:
            known = ", ".join(SECTIONS)
            raise ValueError(f"{item.name}: no section {item.section!r} in the report; there are {known}.")
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
            _column(name, [row[index] for row in table.rows]) for index, name in enumerate(table.columns)
        ],
        links=[Link(_href("tables", f"{table.name}.{end}"), text) for end, text in TABLE_FILES.items()],
    )


def _anchor(kind: str, name: str) -> str:
    return f"{kind}-{re.sub(r'[^A-Za-z0-9_-]+', '-', name)}"


def _href(folder: str, name: str) -> str:
    return f"{folder}/{quote(name)}"


def unbroken(text: str) -> str:
    """Text whose numbers stay on one line with their intervals and units."""
    return re.sub(r" (?=[±%])|(?<=±) ", "\N{NO-BREAK SPACE}", text)


def _width(table: Table) -> int:
    """Of the whole table in characters, as it is shown, with two between columns."""
    columns = zip(*([Cell(name) for name in table.columns], *table.rows), strict=True)
    return sum(max(len(cell.text + cell.mark) for cell in column) + 2 for column in columns)


def _column(name: str, cells: Sequence[Cell]) -> _Column:
    """Numbers, some of which may be missing or shown as words (a switch that is on or off), or text."""
    known = [cell for cell in cells if cell.value is not None]
    numeric = bool(known) and all(isinstance(cell.value, Real) for cell in known)
    digits = any(re.search(r"\d", cell.text) for cell in known)
    return _Column(name, numeric, right=numeric and digits)


def sort_key(cell: Cell, numeric: bool) -> str | None:
    """What a cell sorts by; None is a missing number, which stays last in both directions."""
    value: Any = cell.value
    if not numeric:
        return cell.text if value is None else str(value)
    return f"{float(value):.9g}" if value is not None and math.isfinite(value) else None


def svg_size(content: bytes) -> tuple[int, int]:
    """Width and height of an SVG picture in CSS pixels, so that the page does not jump while it loads."""
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
