"""The embedded dataset wordnet: synsets of WordNet 3.0, classified by lexicographer file.

- Nodes are synsets, which are sets of words with the same meaning.
- The class of a synset is its lexicographer file, such as noun.animal or verb.motion. Files with more than
  800 synsets keep their 800 best connected ones.
- An edge joins two synsets if one points to the other by any of WordNet's relations.
- Features are words of the definition that at least 3 of the kept synsets use. They are binary. Example
  sentences and the words of the synset are not features.

``wordnet-full`` has all synsets. It is built from Debian's package on first use.

**STATS** (``wordnet-full`` below):

.. list-table::
    :header-rows: 1

    * - #nodes
      - #edges
      - #features
      - #classes
    * - 29,449
      - 49,776
      - 8,747
      - 45
    * - 117,659
      - 183,789
      - 21,941
      - 45

The graph is needed. Logistic regression with 60 % of all labels reaches a macro accuracy of 57.8 % on the
features alone. On features averaged over two hops, it reaches 77.7 %. No word predicts a file with precision
and recall both above 0.71. 63 % of the edges are within a class (71 % in the full graph); 483 nodes have no
edge (``python benchmarks/linear.py wordnet``).

``python -m tools.datasets.build_wordnet`` rebuilds ``wordnet.npz``, with the same arrays on any machine.
WordNet's licence is in ``wordnet.LICENSE``.
"""

from __future__ import annotations

from pathlib import Path

from hagmeta.datasets.base import Dataset, DatasetInfo
from hagmeta.datasets.downloads import sources
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


def load() -> Dataset:
    """Read the file in this folder."""
    return npz.load(Path(__file__).parent / "data" / "wordnet.npz", INFO.name)


def load_full(folder: Path) -> Dataset:
    """Build the graph of all synsets from the package in ``folder``."""
    from hagmeta.datasets.downloads import wordnet_files

    return wordnet_files.build_from(folder / sources.WORDNET.name, "wordnet-full", most=None)
