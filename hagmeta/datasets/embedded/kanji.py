"""The embedded dataset kanji: Japanese characters, classified by radical."""

from __future__ import annotations

from pathlib import Path

from hagmeta.datasets.base import Dataset, DatasetInfo
from hagmeta.datasets.embedded.card import DataCard
from hagmeta.datasets.formats import npz

INFO = DatasetInfo(
    name="kanji",
    description="Japanese characters that are neighbours in words, by radical",
    source="embedded",
    nodes=3_311,
    edges=31_362,
    features=1_468,
    classes=33,
    class_split=(9, 9, 15),
    n_way=3,
    k_shot=5,
)

CARD = DataCard(
    source="KANJIDIC of August 2022 and EDICT of February 2021, from Debian 12",
    url="https://www.edrdg.org",
    cite="KANJIDIC and EDICT, property of the Electronic Dictionary Research and Development Group. "
    "https://www.edrdg.org",
    licence="CC-BY-SA-3.0",
    licence_urls=("https://spdx.org/licenses/CC-BY-SA-3.0.html",),
    nodes="Kanji of JIS X 0208 that are next to another kanji in a headword of the dictionary EDICT.",
    classes="The classical radical of the kanji, one of 214 components by which dictionaries are sorted. "
    "Radicals with fewer than 40 of these kanji are left out.",
    edges="Two kanji are joined if they are next to each other in a headword.",
    features="Digits of the four-corner code, each with its place, the number of strokes, Chinese readings, "
    "and words of the English meanings. At least 3 of the kept kanji must share them. They are binary.",
    findings=(
        "No feature predicts a radical with precision and recall both above 0.57.",
        "No model was trained to choose these rules, and the default split is the one that `hagmeta` proposes"
        " for your own graph.",
    ),
    biases=(
        "Headwords of a dictionary: rare words count as much as common ones.",
        "Meanings are in English.",
    ),
    limits=(
        "Four-corner codes describe shapes, and so part of the radical.",
        "Neighbours rarely share a class, and some nodes have hundreds of them.",
        "It is the smallest graph.",
    ),
)


def load() -> Dataset:
    """Read the file in this folder."""
    return npz.load(Path(__file__).parent / "data" / "kanji.npz", INFO.name)
