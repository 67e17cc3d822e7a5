"""The report's page: what `render` writes, and what a reader's browser makes of it."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.page import SECTIONS, Fact, Notice, Picture, render, svg_size
from analysis.table import Cell, Table

HOSTILE = "<script>document.title = 'taken'</script> & \"quoted\" 'label'"
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="460.8pt" height="230.4pt" viewBox="0 0 460.8 230.4">'
    '<rect width="460" height="230" fill="white"/><path d="M20 200 L440 30" stroke="black"/></svg>'
)


def table(name: str = "ablation", rows: int = 8, **changes: Any) -> Table:
    """A table whose numbers neither stand in order nor sort right as text."""
    values = [float((7 * number) % rows) * 10 - 5 for number in range(rows)]
    cells = [
        [Cell(f"row {number}"), Cell("ab"[number % 2]), Cell(f"{value:.1f} ± 1.0", value, mark="*")]
        for number, value in enumerate(values)
    ]
    cells[rows // 2][2] = Cell("–")
    cells[1][2] = replace(cells[1][2], best=True)
    made = Table(name, "ablation", f"Table {name}", "Mean.", ["what", "kind", "last"], cells, pd.DataFrame())
    return replace(made, notes=["* differs from the reference row"], reference=0, **changes)


def picture(folder: Path, name: str = "curves", **changes: Any) -> Picture:
    path = folder / "figures" / f"{name}.svg"
    path.parent.mkdir(exist_ok=True)
    path.write_text(SVG)
    files = [path.with_suffix(end) for end in (".svg", ".png", ".pdf")]
    return replace(Picture(name, "curves", f"Figure {name}", "A curve.", path, files), **changes)


def page(
    tables: Sequence[Table] = (),
    pictures: Sequence[Picture] = (),
    notices: Sequence[Notice] = (),
    leaks: bool = False,
    **changes: Any,
) -> str:
    words: dict[str, Any] = {
        "title": "Ablation",
        "facts": [Fact("datasets", "debian")],
        "findings": ["GPIL helps.", "NLA does not."],
        "command": "python -m analysis results/ablation",
        "data": "frame.parquet",
    }
    return render(tables=tables, pictures=pictures, notices=notices, leaks=leaks, **words | changes)


# What is written, without a browser.


def test_sections_come_in_the_order_of_the_report_and_only_with_content(tmp_path: Path) -> None:
    html = page([table(section="cost")], [picture(tmp_path, section="forgetting"), picture(tmp_path, "two")])
    shown = re.findall(r'<h2 id="(\w+)-title"', html)
    assert shown == ["curves", "forgetting", "cost", "made"]
    assert SECTIONS["ablation"] not in html


def test_figures_come_before_tables_and_both_are_numbered(tmp_path: Path) -> None:
    html = page(
        [table("first", section="curves"), table("second", section="cost")],
        [picture(tmp_path, "one", section="cost"), picture(tmp_path, "two", section="curves")],
    )
    titles = re.findall(r"<h3 id=.*?>((?:Figure|Table) \d)</a> (?:Figure|Table) (\w+)", html)
    assert titles == [("Figure 1", "two"), ("Table 1", "first"), ("Figure 2", "one"), ("Table 2", "second")]


def test_a_section_that_the_report_does_not_have_is_an_error() -> None:
    with pytest.raises(ValueError, match="no section 'curvs'.*curves, ablation"):
        page([table(section="curvs")])


def test_a_notice_shows_five_lines_and_folds_the_rest_away() -> None:
    lines = [f"seed {number} failed" for number in range(37)]
    html = page(notices=[Notice("37 runs failed", lines)])
    assert "show all 37" in html
    before, folded = html.split("show all 37")
    assert before.count(" failed</li>") == 5
    assert folded.count(" failed</li>") == 32


def test_a_short_notice_folds_nothing_away() -> None:
    html = page(notices=[Notice("5 runs failed", ["failed"] * 5)])
    assert "show all" not in html


def test_a_page_without_notices_or_leaks_has_no_such_part() -> None:
    assert 'class="notice' not in page([table()])


def test_what_was_measured_under_released_is_marked_and_only_that(tmp_path: Path) -> None:
    strict, released = table("debian-strict"), table("debian-released")
    pictures = [picture(tmp_path, "a", caption="debian, strict"), picture(tmp_path, "b", caption="released")]
    html = page([strict, released], pictures, leaks=True)
    assert "Some results leak" in html
    marked = re.findall(r'<h3 id="([\w-]+)-title">.*?</a>.*?class="badge leak"', html)
    assert marked == ["figure-b", "table-debian-released"]


def test_a_page_that_does_not_leak_has_no_mark(tmp_path: Path) -> None:
    # Words alone mark nothing: a caption may well name the other protocol.
    html = page([table("strict-beside-released")], [picture(tmp_path)], leaks=False)
    assert "badge leak" not in html
    assert "Some results leak" not in html


def test_links_are_relative_and_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    html = page([table("by seed")], [picture(tmp_path, "curves")])
    targets = [target for target in re.findall(r'(?:href|src)="([^"]*)"', html) if target[0] != "#"]
    files = [target for target in targets if not target.startswith("data:")]
    assert set(files) == {
        *(f"figures/curves.{end}" for end in ("svg", "png", "pdf")),
        *(f"tables/by%20seed.{end}" for end in ("csv", "md", "tex")),
        "frame.parquet",
    }
    assert not re.search(r"https?://", html)


def test_the_picture_inside_the_page_is_the_file(tmp_path: Path) -> None:
    html = page(pictures=[picture(tmp_path)])
    encoded = re.search(r"data:image/svg\+xml;base64,([^\"]+)", html)
    assert encoded and base64.b64decode(encoded.group(1)).decode() == SVG


def test_the_command_stands_under_every_table_and_figure(tmp_path: Path) -> None:
    html = page([table()], [picture(tmp_path)])
    assert html.count("<code>python -m analysis results/ablation</code>") == 3  # and at the end of the page


def test_hostile_text_is_escaped_wherever_it_stands(tmp_path: Path) -> None:
    cells = [[Cell(HOSTILE, HOSTILE + "!", mark=HOSTILE)]]
    html = page(
        [Table("t", "cost", HOSTILE, HOSTILE, [HOSTILE], cells, pd.DataFrame(), [HOSTILE], 0)],
        [picture(tmp_path, title=HOSTILE, caption=HOSTILE)],
        [Notice(HOSTILE, [HOSTILE] * 9)],
        title=HOSTILE,
        facts=[Fact(HOSTILE, HOSTILE)],
        findings=[HOSTILE, HOSTILE],
        command=HOSTILE,
    )
    assert html.count("<script>") == 1  # our own


def test_the_page_without_figures_is_light() -> None:
    assert len(page([table()]).encode()) < 40_000


@pytest.mark.parametrize(
    ("opening", "size"),
    [
        ('<svg width="72pt" height="36pt" viewBox="0 0 9 9">', (96, 48)),
        ("<svg width='100' height='50px'>", (100, 50)),
        ('<svg viewBox="0 0 300 200" stroke-width="2">', (300, 200)),
        ('<svg width="100%" viewBox="0,0,30,20">', (30, 20)),
        ("<svg>", (640, 400)),
    ],
)
def test_the_size_of_a_picture_is_read_from_its_file(opening: str, size: tuple[int, int]) -> None:
    assert svg_size(f"<?xml version='1.0'?>\n{opening}</svg>".encode()) == size
