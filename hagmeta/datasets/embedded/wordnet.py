"""The embedded dataset wordnet: synsets of WordNet 3.0, classified by lexicographer file."""

from __future__ import annotations

from pathlib import Path

from hagmeta.datasets.base import Dataset, DatasetInfo
from hagmeta.datasets.downloads import sources
from hagmeta.datasets.embedded.card import DataCard
from hagmeta.datasets.formats import npz

INFO = DatasetInfo(
    name="wordnet",
    description="meanings of English words and their relations, by lexicographer file",
    source="embedded",
    nodes=29_449,
    edges=49_776,
    features=8_747,
    classes=45,
    class_split=(12, 12, 21),
    n_way=3,
    k_shot=5,
)

CARD = DataCard(
    source="WordNet 3.0, from Debian 12's package `wordnet-base`",
    url="https://wordnet.princeton.edu",
    cite="WordNet 3.0. Copyright 2006 by Princeton University. https://wordnet.princeton.edu",
    licence="LicenseRef-WordNet",
    licence_urls=("https://wordnet.princeton.edu/license-and-commercial-use",),
    nodes="Synsets, which are sets of words with the same meaning.",
    classes="The lexicographer file of the synset, such as noun.animal or verb.motion. Files with more than "
    "800 synsets keep their 800 best connected ones. The dataset `wordnet-full` keeps all.",
    edges="Two synsets are joined if one points to the other by any of WordNet's relations.",
    features="Words of the definition that at least 3 of the kept synsets use. They are binary. Example "
    "sentences and the words of the synset are not features.",
    findings=(
        "Logistic regression on 60 % of all labels: macro accuracy 57.8 % on the features alone, 77.7 % on "
        "features averaged over two hops (`python benchmarks/linear.py wordnet`).",
        "No word predicts a file with precision and recall both above 0.71.",
    ),
    biases=(
        "English as lexicographers described it before 2006. Definitions may be dated or offensive.",
        "General concepts, which have many relations, are kept more often in large files.",
    ),
    limits=(
        "Words of the names of files stay in the features.",
        "Most relations are between more and less general concepts, and most of them stay within a file.",
    ),
)


def load() -> Dataset:
    """Read the file in this folder."""
    return npz.load(Path(__file__).parent / "data" / "wordnet.npz", INFO.name)


def load_full(folder: Path) -> Dataset:
    """Build the graph of all synsets from the package in ``folder``."""
    from hagmeta.datasets.downloads import wordnet_files

    return wordnet_files.build_from(folder / sources.WORDNET.name, "wordnet-full", most=None)
