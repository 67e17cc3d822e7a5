"""The embedded dataset foldoc: articles of a dictionary of computing, classified by subject."""

from __future__ import annotations

from pathlib import Path

from hagmeta.datasets.base import Dataset, DatasetInfo
from hagmeta.datasets.embedded.card import DataCard
from hagmeta.datasets.formats import npz

INFO = DatasetInfo(
    name="foldoc",
    description="articles of a dictionary of computing and their references, by subject",
    source="embedded",
    nodes=7_200,
    edges=21_326,
    features=9_864,
    classes=40,
    class_split=(10, 12, 18),
    n_way=3,
    k_shot=5,
)

CARD = DataCard(
    source="the Free On-line Dictionary of Computing of January 2023, from Debian 12's package `dict-foldoc`",
    url="http://foldoc.org/",
    cite="The Free On-line Dictionary of Computing, http://foldoc.org/, Editor Denis Howe",
    licence="GFDL-1.1-no-invariants-or-later",
    licence_urls=("https://spdx.org/licenses/GFDL-1.1-no-invariants-or-later.html",),
    nodes="Articles.",
    classes="The first subject at the start of the definition, as in `<networking, protocol>`. Subjects with "
    "fewer than 40 articles are left out. So are articles without a subject, articles whose senses differ in "
    "it, and a list of acronyms.",
    edges="Two articles are joined if one refers to the other, by any of its headwords or their plural. A "
    "mark that names the source of a text is not a reference.",
    features="Words of the definition that at least 3 of the kept articles use. They are binary. Subjects, "
    "words of class names, addresses and dates are not features.",
    findings=(
        "Logistic regression on 60 % of all labels: macro accuracy 45.2 % on the features alone, 50.1 % on "
        "features averaged over two hops (`python benchmarks/linear.py foldoc`).",
        "With the words of class names, it was 48.5 % and 51.3 %.",
        "No word predicts a subject with precision and recall both above 0.61.",
    ),
    biases=(
        "Computing as the editors of one English dictionary described it.",
        "Terms with several meanings are left out if their subjects differ.",
    ),
    limits=(
        "Many articles have several subjects, of which only the first counts. Labels are therefore noisy.",
        "Class sizes are uneven.",
    ),
)


def load() -> Dataset:
    """Read the file in this folder."""
    return npz.load(Path(__file__).parent / "data" / "foldoc.npz", INFO.name)
