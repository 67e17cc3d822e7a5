"""The embedded dataset boost: headers of the Boost C++ libraries, classified by library.

- Nodes are header files.
- The class of a header is its library, which is the first folder of its path. Libraries with fewer than 40
  headers are left out, and so are headers in no folder, shared internals (``boost/detail``) and headers that
  the preprocessor generated.
- An edge joins two headers if one includes the other by its name.
- Features are keywords of C++, names of the standard library, such as ``std::move``, and included headers of
  the standard library or the system, such as ``<vector>``. At least 3 headers must use them. They are binary.
  Comments and Boost's own names are not features.

**STATS** (Boost 1.74, as in Debian 12):

.. list-table::
    :header-rows: 1

    * - #nodes
      - #edges
      - #features
      - #classes
    * - 12,118
      - 54,412
      - 600
      - 70

Most neighbours share a class, and class sizes are uneven. 80 % of the edges are within a class; 4 % would be
by chance. A node has 9 neighbours on average, and 122 nodes have none. 836 headers, which mostly include
others, have no feature. No feature predicts a library with precision and recall both above 0.48. No model was
trained to choose these rules.

The default split is the one that :func:`hagmeta.scenarios.splits.common_classes` proposes for 3-way 5-shot.

:mod:`tools.datasets.build_boost` rebuilds ``boost.npz``, with the same arrays on any machine. Boost is
under the Boost Software License (``boost.LICENSE``).
"""

from __future__ import annotations

from pathlib import Path

from hagmeta.datasets.base import Dataset, DatasetInfo
from hagmeta.datasets.formats import npz

INFO = DatasetInfo(
    name="boost",
    description="headers of the Boost C++ libraries and their includes, by library",
    source="embedded",
    nodes=12_118,
    edges=54_412,
    features=600,
    classes=70,
    class_split=(19, 18, 33),
    n_way=3,
    k_shot=5,
)


def load() -> Dataset:
    """Read the file in this folder."""
    return npz.load(Path(__file__).parent / "data" / "boost.npz", INFO.name)
