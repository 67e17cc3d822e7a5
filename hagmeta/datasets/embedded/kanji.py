"""The embedded dataset kanji: Japanese characters, classified by radical.

- Nodes are the kanji of JIS X 0208 that are next to another kanji in a headword of the dictionary EDICT.
- The class of a kanji is its classical radical, one of 214 components by which dictionaries are sorted.
  Radicals with fewer than 40 of these kanji are left out.
- An edge joins two kanji if they are next to each other in a headword.
- Features are the digits of the kanji's four-corner code, each with its place, the number of strokes, Chinese
  readings, and words of the English meanings. At least 3 of the kept kanji must share them. They are binary.

**STATS** (KANJIDIC of August 2022 and EDICT of February 2021, as in Debian 12):

.. list-table::
    :header-rows: 1

    * - #nodes
      - #edges
      - #features
      - #classes
    * - 3,311
      - 31,362
      - 1,468
      - 33

Neighbours rarely share a class, and some nodes have hundreds of them. 10 % of the edges are within a class;
4 % would be by chance. A node has 19 neighbours on average and 5 in the median; 256 nodes have none. No
feature predicts a radical with precision and recall both above 0.57. No model was trained to choose these
rules.

The default split is the one that :func:`hagmeta.scenarios.splits.common_classes` proposes for 3-way 5-shot.

:mod:`tools.datasets.build_kanji` rebuilds ``kanji.npz``, with the same arrays on any machine. KANJIDIC and
EDICT, and therefore ``kanji.npz``, are under the Creative Commons Attribution-ShareAlike licence 3.0
(``kanji.LICENSE``).
"""

from __future__ import annotations

from pathlib import Path

from hagmeta.datasets.base import Dataset, DatasetInfo
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


def load() -> Dataset:
    """Read the file in this folder."""
    return npz.load(Path(__file__).parent / "data" / "kanji.npz", INFO.name)
