"""The embedded dataset debian: packages of Debian 12, classified by archive section.

- Nodes are packages of the component main.
- The class of a package is its section of the archive. Sections with fewer than 100 packages are left out.
  Larger sections keep their 500 best connected packages.
- An edge joins two packages if one depends on, pre-depends on, recommends or suggests the other. All
  alternatives count.
- Features are words of the one-line description that at least 3 of the kept packages use. They are binary.

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

:mod:`tools.datasets.build_debian` rebuilds ``debian.npz``. The counts change with the Debian archive.
"""

from __future__ import annotations

from pathlib import Path

from hagmeta.datasets.base import Dataset, DatasetInfo
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


def load() -> Dataset:
    """Read the file in this folder."""
    return npz.load(Path(__file__).parent / "data" / "debian.npz", INFO.name)
