"""The embedded dataset debian: packages of Debian 12, classified by archive section."""

from __future__ import annotations

from pathlib import Path

from hagmeta.datasets.base import Dataset, DatasetInfo
from hagmeta.datasets.embedded.card import DataCard
from hagmeta.datasets.formats import npz

INFO = DatasetInfo(
    name="debian",
    description="packages of Debian 12, by archive section",
    source="embedded",
    nodes=19_729,
    edges=131_552,
    features=4_208,
    classes=51,
    class_split=(12, 12, 27),
    n_way=3,
    k_shot=5,
)

CARD = DataCard(
    source="package lists of Debian 12, component main, arm64, November 2026",
    url="https://packages.debian.org/bookworm/",
    cite="Debian 12 (bookworm), package lists of the component main. https://www.debian.org",
    licence="none of its own: package lists have no licence text",
    licence_urls=("https://www.debian.org/legal/licenses/",),
    nodes="Packages of the component main.",
    classes="The section of the package in the archive. Sections with fewer than 100 packages are left out. "
    "Larger sections keep their 500 best connected packages.",
    edges="Two packages are joined if one depends on, pre-depends on, recommends or suggests the other. All "
    "alternatives count.",
    features="Words of the one-line description that at least 3 of the kept packages use. They are binary.",
    findings=(
        "Logistic regression on 60 % of all labels: macro accuracy 70.3 % on the features alone, 79.7 % on "
        "features averaged over two hops (`python benchmarks/linear.py debian`).",
    ),
    biases=(
        "Packages with many relations are kept, and rarely used ones are dropped.",
        "Sections are chosen by maintainers. Some are kinds of file, such as libraries for developers, and "
        "others are subjects.",
        "Descriptions are in English.",
    ),
    limits=(
        "Words of the names of sections stay in the features.",
        "Packages from one source have similar descriptions and refer to each other.",
        "The source is not pinned: the builder gives another graph when Debian's lists change.",
    ),
)


def load() -> Dataset:
    """Read the file in this folder."""
    return npz.load(Path(__file__).parent / "data" / "debian.npz", INFO.name)
