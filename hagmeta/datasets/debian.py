"""The embedded dataset: the packages of Debian 12, classified by archive section.

A node is a package of the component main. Its class is its section of the archive, if that has at least 100
packages; of a section with more than 500 the 500 best connected are kept. An edge joins two packages of
which one depends on, pre-depends on, recommends or suggests the other, as any of the alternatives it names.
A feature is a word of the one-line description that at least 3 of the kept packages use, 1 where it occurs.

**STATS** (arm64 package lists of November 2026):

.. list-table::
    :header-rows: 1

    * - #nodes
      - #edges
      - #features
      - #classes
    * - 19,729
      - 131,552
      - 4,208
      - 51

:mod:`hagmeta.datasets.build_debian` makes ``debian.npz`` anew; the archive moves, so its counts will too.
"""

from __future__ import annotations

from pathlib import Path

from hagmeta.datasets import npz
from hagmeta.datasets.base import Dataset, DatasetInfo

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


def load() -> Dataset:
    """Read the file beside this module."""
    return npz.load(Path(__file__).with_name("debian.npz"), INFO.name)
