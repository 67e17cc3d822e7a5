"""The report's page: what `render` writes, and what a reader's browser makes of it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.page.page import SECTIONS, Fact, Notice, Page, Picture, render
from analysis.tables.table import Cell, Table
from tests.analysis.browsing import BACKSPACE, CONTRAST, ESCAPE, SELECT_ALL, find, texts

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
    cells[rows // 2][2] = Cell("none")
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
    return render(Page(tables=tables, pictures=pictures, notices=notices, leaks=leaks, **words | changes))


# What is written, without a browser.


def test_sections_come_in_the_order_of_the_report_and_only_with_content(tmp_path: Path) -> None:
    html = page([table(section="cost")], [picture(tmp_path, section="forgetting"), picture(tmp_path, "two")])
    shown = re.findall(r'<h2 id="(\w+)-title"', html)
    assert shown == ["curves", "forgetting", "cost", "made"]
    assert f">{SECTIONS['cost']}</a>" in html and f">{SECTIONS['ablation']}</a>" not in html  # contents


def test_figures_come_before_tables_and_both_are_numbered(tmp_path: Path) -> None:
    html = page(
        [table("first", section="curves"), table("second", section="cost")],
        [picture(tmp_path, "one", section="cost"), picture(tmp_path, "two", section="curves")],
    )
    titles = re.findall(r"<h3 id=.*?>((?:Figure|Table) \d)</a> (?:Figure|Table) (\w+)", html)
    assert titles == [("Figure 1", "two"), ("Table 1", "first"), ("Figure 2", "one"), ("Table 2", "second")]


def test_many_tables_of_one_row_are_folded() -> None:
    long = table(section="curves")
    many = [replace(long, name=f"t{number}", rows=long.rows[:1]) for number in range(7)]
    assert '<details class="fold">' not in page(many[:6]) and '<details class="fold">' in page(many)
    assert '<details class="fold">' not in page([*many, long])


def test_abbreviations_are_explained_where_they_occur() -> None:
    html = page([table(section="ablation", title="Effects of TLA")])
    assert "TLA: attention over tasks" in html and "GPIL: training" not in html
    assert "TLA: attention" not in page([table(section="curves", title="Effects of TLA")])


def test_long_texts_of_a_column_wrap() -> None:
    rows = [[Cell("a"), Cell("inconclusive: needs 19 seeds for better"), Cell("worse")]]
    html = page([Table("t", "curves", "T", "C", ["what", "verdict", "short"], rows, pd.DataFrame())])
    assert '<th scope="col" class="words">verdict</th>' in html
    assert '<th scope="col">short</th>' in html


def test_six_findings_are_in_sight_and_the_others_are_folded() -> None:
    findings = [f"Finding {number}." for number in range(9)]
    before, folded = page(findings=findings, setting="strict", seeds="10 seeds").split("3 more findings")
    assert [re.findall(r"Finding (\d)", part) for part in (before, folded)] == [list("012345"), list("678")]
    assert '<span class="badge">10 seeds</span>' in before
    assert "more finding" not in page(findings=findings[:6])


def test_a_notice_shows_five_lines_and_folds_the_rest_away() -> None:
    lines = [f"seed {number} failed" for number in range(37)]
    html = page(notices=[Notice("37 runs failed", lines)])
    assert "show all 37" in html
    before, folded = html.split("show all 37")
    assert before.count(" failed</li>") == 5
    assert folded.count(" failed</li>") == 32


def test_what_was_measured_under_released_is_marked_and_only_that(tmp_path: Path) -> None:
    strict, released = table("debian-strict"), table("debian-released", leaks=True)
    pictures = [picture(tmp_path, "a", caption="debian, strict"), picture(tmp_path, "b", leaks=True)]
    html = page([strict, released], pictures, leaks=True)
    assert "Some results leak" in html
    marked = re.findall(r'<h3 id="([\w-]+)-title">.*?</a>.*?class="badge leak"', html)
    assert marked == ["table-debian-released", "figure-b"]


def test_a_page_that_does_not_leak_has_no_mark(tmp_path: Path) -> None:
    # The paper's numbers leak, too: that alone marks nothing here.
    html = page([table("strict-beside-released", leaks=True)], [picture(tmp_path)], leaks=False)
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


# What a reader meets, in a real browser.


SLOW_WIDTHS = [pytest.param(width, marks=pytest.mark.slow) for width in (768, 1280, 1920)]


def full_page(folder: Path) -> str:
    long = table("long", rows=60)
    broad = Table(
        *("broad", "cost", "Broad", "Many columns.", [f"column {number}" for number in range(24)]),
        [[Cell(f"{number}.0 ± 1.0", number) for number in range(24)] for _ in range(9)],
        pd.DataFrame(),
    )
    return page(
        [table(), long, broad],
        [picture(folder, name) for name in ("one", "two", "three")],
        [Notice("9 runs failed", [f"/results/{'long' * 40}: <Error> {number}" for number in range(9)])],
        leaks=True,
    )


def test_it_opens_from_disk_without_an_error_or_a_request(show: Callable[..., Any], tmp_path: Path) -> None:
    browser = show(full_page(tmp_path))
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in sent if not url.startswith("data:")] == [browser.current_url]
    assert browser.execute_script("return [...document.images].every((image) => image.naturalWidth === 614)")


def test_a_click_on_a_header_sorts_by_number_then_back(show: Callable[..., Any]) -> None:
    browser = show(page([table()]))
    header = find(browser, "thead th:nth-child(3)")
    orders = []
    for _ in range(3):
        header.find_element("css selector", "button").click()
        orders.append((header.get_attribute("aria-sort"), texts(browser, "tbody td:nth-child(3)")))
    # 5.0 after -5.0, 15.0 after 5.0: not as text; and what has no number is last both ways.
    ascending = [f"{value}.0 ± 1.0*" for value in (-5, 5, 15, 25, 35, 45, 55, 65)]
    missing = ascending.pop(4)
    assert missing.startswith("35")
    assert orders[0] == ("ascending", [*ascending, "none"])
    assert orders[1] == ("descending", [*reversed(ascending), "none"])
    assert orders[2][0] is None
    assert texts(browser, "tbody th")[0] == "row 0 reference"


def test_a_filter_keeps_rows_that_contain_it_and_counts_them(show: Callable[..., Any]) -> None:
    browser = show(page([table(rows=12)]))
    box = find(browser, ".filter input")
    box.send_keys("ROW 1")
    assert texts(browser, "tbody tr:not([hidden]) th") == ["row 1", "row 10", "row 11"]
    assert texts(browser, "output") == ["3 of 12 rows"]
    box.send_keys(" nothing like it")
    assert texts(browser, "output") == ["0 of 12 rows"]
    box.send_keys(SELECT_ALL, BACKSPACE)
    assert texts(browser, "output") == ["12 rows"]
    assert len(texts(browser, "tbody tr:not([hidden])")) == 12


def test_a_link_opens_the_folded_section_that_it_leads_to(show: Callable[..., Any]) -> None:
    browser = show(page([table("seconds", section="cost")]))
    assert not find(browser, "#table-seconds table").is_displayed()
    find(browser, "nav a[href='#cost']").click()
    assert find(browser, "#table-seconds table").is_displayed()


def test_a_figure_opens_larger_and_escape_or_the_button_closes_it(
    show: Callable[..., Any], tmp_path: Path
) -> None:
    browser = show(full_page(tmp_path))
    small = find(browser, "figure.picture img")
    dialog = find(browser, "dialog")
    for way in ("escape", "button"):
        small.click()
        large = dialog.find_element("css selector", "img")
        assert dialog.get_attribute("open")
        assert large.size["width"] > small.size["width"]
        if way == "escape":
            dialog.find_element("css selector", "button").send_keys(ESCAPE)
        else:
            dialog.find_element("css selector", "button").click()
        assert not dialog.get_attribute("open")
    assert browser.current_url.endswith("report.html")


def test_it_prints_with_its_figures_and_without_its_controls(
    show: Callable[..., Any], tmp_path: Path
) -> None:
    browser = show(full_page(tmp_path))
    pdf = base64.b64decode(browser.print_page())
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    assert pdf.startswith(b"%PDF") and len(pdf) > 20_000 and pages > 2
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    hidden = ["nav", "dialog", "input", ".sources", ".notice summary"]
    shown = [
        selector
        for selector in hidden
        if any(e.is_displayed() for e in browser.find_elements("css selector", selector))
    ]
    assert shown == []
    assert find(browser, ".printed").text == "and 4 more"
    assert find(browser, "#made code").is_displayed()


@pytest.mark.parametrize("width", [375, *SLOW_WIDTHS])
def test_the_page_is_never_wider_than_the_screen(
    show: Callable[..., Any], tmp_path: Path, width: int
) -> None:
    browser = show(full_page(tmp_path), width=width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    frame = "const frame = document.querySelector('#table-broad .scroll');"
    assert browser.execute_script(f"{frame} return frame.scrollWidth > frame.clientWidth")
    # The first column stays in place while the others scroll.
    moved = "frame.scrollLeft = 200; const left = (element) => element.getBoundingClientRect().left;"
    assert (
        browser.execute_script(f"{frame} {moved} return left(frame.querySelector('tbody th')) - left(frame)")
        == 0
    )


@pytest.mark.parametrize(
    ("scheme", "ground"),
    [
        pytest.param("light", "rgba(255, 255, 255, 1)", marks=pytest.mark.slow),
        ("dark", "rgba(22, 24, 27, 1)"),
    ],
)
def test_both_colour_schemes_are_legible(
    show: Callable[..., Any], tmp_path: Path, scheme: str, ground: str
) -> None:
    browser = show(full_page(tmp_path), scheme=scheme)
    assert find(browser, "body").value_of_css_property("background-color") == ground
    assert browser.execute_script(CONTRAST) == []
    swapped = find(browser, ".enlarge img").value_of_css_property(
        "filter"
    )  # figures are drawn for white paper
    assert swapped == ("invert(1) hue-rotate(180deg)" if scheme == "dark" else "none")


def test_hostile_labels_are_shown_as_text(show: Callable[..., Any], tmp_path: Path) -> None:
    rows = [[Cell(HOSTILE, mark=HOSTILE)] for _ in range(7)]
    hostile = Table("t", "comparison", HOSTILE, HOSTILE, [HOSTILE], rows, pd.DataFrame(), [HOSTILE], 0)
    browser = show(page([hostile], [picture(tmp_path, title=HOSTILE)], [Notice(HOSTILE, [HOSTILE])]))
    find(browser, "thead button").click()
    find(browser, "figure.picture img").click()
    assert browser.title == "Ablation"
    assert texts(browser, ".notice li") == [HOSTILE]
    assert texts(browser, "thead button") == [HOSTILE]
    assert find(browser, "#viewer-title").text == f"Figure 1 {HOSTILE}"
    assert find(browser, "dialog img").get_attribute("alt").startswith(HOSTILE)
    assert browser.get_log("browser") == []


def test_without_scripts_everything_can_still_be_read(show: Callable[..., Any], tmp_path: Path) -> None:
    browser = show(full_page(tmp_path), scripts=False)
    rows = browser.find_elements("css selector", "#table-ablation tbody tr")
    assert rows[1].text.startswith("row 1 b")
    assert all(row.is_displayed() for row in rows)
    # No control that would do nothing.
    assert not find(browser, ".filter").is_displayed()
    assert browser.find_elements("css selector", "thead button") == []
    assert find(browser, ".enlarge").get_attribute("href").endswith("figures/one.svg")
