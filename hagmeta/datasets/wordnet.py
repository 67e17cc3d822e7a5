"""The embedded dataset of English: the synsets of WordNet 3.0, classified by lexicographer file.

A node is a synset, a set of words with one meaning. Its class is the lexicographer's file that it was written
in, such as noun.animal or verb.motion; of a file with more than 800 the 800 best connected are kept. An edge
joins two synsets of which one points to the other, by any of WordNet's relations. A feature is a word of the
definition that at least 3 of the kept synsets use, 1 where it occurs; example sentences and the synset's own
words are not among them. ``wordnet-full`` is the same of all synsets, built from Debian's package on first
use.

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

The graph is needed: logistic regression, given 60 % of all labels, reaches a macro accuracy of 57.8 % on the
features alone and of 77.7 % on those of two hops. No word tells a file with precision and recall both above
0.71. 63 % of the edges are within a class (71 % of the full graph's); 483 nodes have no edge.
(``python benchmarks/linear.py wordnet``.)

:mod:`hagmeta.datasets.build_wordnet` makes ``wordnet.npz`` anew, with the same arrays anywhere. WordNet's
licence is ``wordnet.LICENSE``.
"""

from __future__ import annotations

from pathlib import Path

from hagmeta.datasets import npz, sources
from hagmeta.datasets.base import Dataset, DatasetInfo

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
    """Read the file beside this module."""
    return npz.load(Path(__file__).with_name("wordnet.npz"), INFO.name)


def load_full(folder: Path) -> Dataset:
    """All synsets, from the package in ``folder``."""
    from hagmeta.datasets import build_wordnet  # a command, too, which must not have been imported before

    return build_wordnet.build_from(folder / sources.WORDNET.name, "wordnet-full", most=None)
