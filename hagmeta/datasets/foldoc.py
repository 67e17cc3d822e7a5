"""The embedded dataset of computing: the articles of FOLDOC, classified by subject.

A node is an article of the Free On-line Dictionary of Computing. Its class is the first of the subjects that
its definition begins with, as in ``<networking, protocol>``, if at least 40 articles have it. Articles
without one are left out, those whose senses differ in it, and a list of acronyms. An edge joins two articles
of which one refers to the other, by any of its headwords or their plural; that a text was taken from
elsewhere is no reference. A feature is a word of the definition that at least 3 of the kept articles use, 1
where it occurs; subjects, the words of the classes' names, addresses and dates are not among them.

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

The graph helps: logistic regression, given 60 % of all labels, reaches a macro accuracy of 45.2 % on the
features alone and of 50.1 % on those of two hops. No word tells a subject with precision and recall both
above 0.61. 35 % of the edges are within a class; 631 nodes have no edge.
(``python benchmarks/linear.py foldoc``.) With the words of the classes' names, features alone
reached 48.5 % and two hops 51.3 %.

:mod:`hagmeta.datasets.build_foldoc` makes ``foldoc.npz`` anew, with the same arrays anywhere. FOLDOC, and so
``foldoc.npz``, is under the GNU Free Documentation License (``foldoc.LICENSE``).
"""

from __future__ import annotations

from pathlib import Path

from hagmeta.datasets import npz
from hagmeta.datasets.base import Dataset, DatasetInfo

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
    """Read the file beside this module."""
    return npz.load(Path(__file__).with_name("foldoc.npz"), INFO.name)
