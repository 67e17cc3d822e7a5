from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hagmeta import datasets
from hagmeta.__main__ import main
from hagmeta.datasets import Dataset, DatasetInfo, at_hand
from hagmeta.datasets.descriptions.page import render
from hagmeta.datasets.descriptions.summary import summary_of
from hagmeta.datasets.downloads import sources
from hagmeta.datasets.formats import npz

VOID = {"meta", "link"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Elements(HTMLParser):
    """Counts elements, and finds those that are not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, _: object) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, _: object) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_shows_every_dataset_and_asks_nothing_of_a_network(
    graph: Dataset,
    write_mat: Callable[[Path], str],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(datasets, "EMBEDDED", {})  # they take seconds; that they are at hand is tested below
    npz.save(folder / "g.npz", graph)
    names = ["npz:g.npz", f"mat:{write_mat(folder)}"]
    assert main(["datasets", *names, "--report"]) == 0
    page = (folder / "datasets.html").read_text()
    assert capsys.readouterr().out == f"wrote datasets.html: {', '.join(names)}\n"
    for name in names:
        assert f"<h2>{name}</h2>" in page
    assert f"datasets npz:g.npz {names[1]} --report datasets.html" in page
    elements = Elements(page)
    assert not elements.open and "script" not in elements.seen
    assert elements.seen.count("figure") == 3 * 2
    assert not re.search(r"https?:|url\(|@import|src=", page)


def test_names_of_classes_are_text_and_nothing_else(graph: Dataset) -> None:
    names = ("<script>alert(1)</script>", '"><img src=x>', "&amp;", "{{ 7 * 7 }}", "e")
    page = render([summary_of(replace(graph, class_names=names), DatasetInfo("g", "<b>", "g"))], "made <so>")
    elements = Elements(page)
    assert not elements.open and not {"script", "img", "b", "so"} & set(elements.seen)
    assert "&lt;script&gt;" in page and "{{ 7 * 7 }}" in page and "&amp;amp;" in page


def test_a_graph_whose_classes_are_too_small_has_no_accuracies(graph: Dataset) -> None:
    alone = replace(graph, labels=graph.labels * 0 + range(60), class_names=tuple(map(str, range(60))))
    page = render([summary_of(alone, DatasetInfo("g", "g", "g"))], "made")
    assert "classes too small" in page and Elements(page).seen.count("figure") == 2


def test_at_hand_is_what_is_embedded_or_downloaded(folder: Path) -> None:
    assert "debian" in at_hand(folder) and "cora-full" not in at_hand(folder)
    place = folder / "cora-full" / sources.RAW_FOLDERS["cora-full"]
    place.mkdir(parents=True)
    for file in sources.FILES["cora-full"]:
        (place / file.name).touch()
    assert "cora-full" in at_hand(folder)
    assert not any(name.startswith("synthetic") for name in at_hand(folder))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--report", "npz:g.npz"], "--report npz:g.npz: expected a file name that ends in .html"),
        (["--report", "no/page.html"], "there is no folder no"),
        (["nothing", "--report"], "unknown dataset 'nothing'"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(
    arguments: list[str], says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["datasets", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and says in shown.err and shown.err.count("\n") == 1
    assert not list(folder.glob("*.html"))
