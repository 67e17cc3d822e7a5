"""The embedded dataset metamath: theorems of Metamath's set.mm, classified by section.

- Nodes are axioms, definitions and theorems.
- The class of a statement is its section of the database. Sections with fewer than 40 statements are left
  out, and so are guides and mathboxes, whose sections are named after people.
- An edge joins a theorem to a statement that its proof cites. Statements with more than 30 citations are used
  in all sections, so edges to them are left out.
- Features are constant symbols of the statement, such as ``+`` or ``->``, that at least 50 statements use.
  They are binary. Labels, titles, comments and hypotheses are not features.

**STATS** (set.mm of December 2020, as in Debian 12):

.. list-table::
    :header-rows: 1

    * - #nodes
      - #edges
      - #features
      - #classes
    * - 26,713
      - 103,633
      - 263
      - 76

The graph is needed. Logistic regression with 60 % of all labels reaches a macro accuracy of 52.8 % on the
features alone. On features averaged over two hops, it reaches 69.4 %. No symbol predicts a section with
precision and recall both above 0.74. 49 % of the edges are within a class; 1,290 nodes have no edge (``python
benchmarks/linear.py metamath``). With rarer symbols, which almost name their section, features alone reached
65 % and two hops 71 %. With the symbols of the hypotheses in addition, it was 83 % and 76 %.

:mod:`tools.datasets.build_metamath` rebuilds ``metamath.npz``, with the same arrays on any machine. set.mm
is in the public domain (``metamath.LICENSE``).

Statements have an order in set.mm, and a proof cites only earlier ones. Node numbers say nothing about it.
The builder writes it to a second file, ``metamath_order.npz``, for the protocol `growing`. The graph and its
fingerprint are the same without it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hagmeta.datasets.base import Dataset, DatasetInfo
from hagmeta.datasets.formats import npz

INFO = DatasetInfo(
    name="metamath",
    description="theorems of Metamath and their citations, by section",
    source="embedded",
    nodes=26_713,
    edges=103_633,
    features=263,
    classes=76,
    class_split=(16, 20, 40),
    n_way=5,
    k_shot=5,
)


def load() -> Dataset:
    """Read the two files in this folder: the graph, and the order of its nodes."""
    dataset = npz.load(Path(__file__).parent / "data" / "metamath.npz", INFO.name)
    order = npz.load_order(Path(__file__).parent / "data" / "metamath_order.npz", dataset.num_nodes)
    return replace(dataset, node_order=order)
