"""The embedded dataset foldoc: articles of a dictionary of computing, classified by subject.

- Nodes are articles of the Free On-line Dictionary of Computing.
- The class of an article is the first subject at the start of its definition, as in
  ``<networking, protocol>``. Subjects with fewer than 40 articles are left out. Articles without a subject,
  articles whose senses differ in it, and a list of acronyms are also left out.
- An edge joins two articles if one refers to the other, by any of its headwords or their plural. A mark that
  names the source of a text is not a reference.
- Features are words of the definition that at least 3 of the kept articles use. They are binary. Subjects,
  words of class names, addresses and dates are not features.

**STATS** (FOLDOC of January 2023, as in Debian 12):

.. list-table::
    :header-rows: 1

    * - #nodes
      - #edges
      - #features
      - #classes
    * - 7,200
      - 21,326
      - 9,864
      - 40

The graph helps. Logistic regression with 60 % of all labels reaches a macro accuracy of 45.2 % on the
features alone. On features averaged over two hops, it reaches 50.1 %. No word predicts a subject with
precision and recall both above 0.61. 35 % of the edges are within a class; 631 nodes have no edge (``python
benchmarks/linear.py foldoc``). With the words of class names, features alone reached 48.5 % and two hops 51.3
%.

:mod:`tools.datasets.build_foldoc` rebuilds ``foldoc.npz``, with the same arrays on any machine. FOLDOC, and
therefore ``foldoc.npz``, is under the GNU Free Documentation License (``foldoc.LICENSE``).
"""

from __future__ import annotations

from pathlib import Path

from hagmeta.datasets.base import Dataset, DatasetInfo
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


def load() -> Dataset:
    """Read the file in this folder."""
    return npz.load(Path(__file__).parent / "data" / "foldoc.npz", INFO.name)
