"""The words that people read: short sentences, a README of one minute, no phrase that needs a second look."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.prose import lengths_of, pages, sentences_of

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = pages([README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "docs", ROOT / "examples"])
PHRASES = ("to be had", "anew", "so many times", "beside", "is said", "is told", "stands in", "whoever")
TEXT = {".py", ".yaml", ".yml", ".md", ".jinja", ".html", ".css", ".js", ".ipynb", ".sh"}


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def texts() -> list[Path]:
    folders = ("hagmeta", "study", "analysis", "search_spaces", "docs", "examples", "slurm")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in TEXT]
    return [*(path for path in found if "_build" not in path.parts), *ROOT.glob("*.md"), *ROOT.glob("*.yaml")]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_sentences_are_short(page: Path) -> None:
    lengths = lengths_of(page.read_text())
    told = "\n".join(lengths.longest)
    assert lengths.median <= 16 and lengths.ninetieth <= 30, f"{lengths.median}, {lengths.ninetieth}\n{told}"


def test_no_phrase_that_needs_a_second_look() -> None:
    phrase = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b", re.IGNORECASE)
    found = [
        f"{named(path)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if phrase.search(line)
    ]
    assert not found, "\n".join(found)


def test_the_readme_takes_a_minute() -> None:
    """Code, tables and citations do not count."""
    assert sum(len(sentence.split()) for sentence in sentences_of(README.read_text())) <= 500


@pytest.mark.parametrize("page", [page for page in PAGES if "docs" not in page.parts], ids=named)
def test_links_of_pages_outside_the_site_lead_somewhere(page: Path) -> None:
    """The site's build checks those inside."""
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_long_sentences_and_code_are_told_apart() -> None:
    prose, code = "One two three. `Four` five, six!", "```\nno prose here\n```"
    lengths = lengths_of(f"{prose}\n\n{code}\n\n| a | table |\n\n- Seven [eight](nine.md).")
    assert (lengths.sentences, lengths.median) == (3, 3.0)
