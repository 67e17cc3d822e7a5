"""Write graphs that lack something: small ones, ones without homophily, and ones with few uneven classes.

    python benchmarks/control_graphs.py [GRAPH ...]

Makes, in the current folder:

- NAME-small.npz: random nodes of an embedded graph, with all edges between them;
- NAME-rewired.npz: all nodes, but every edge leads to a random node, with degrees kept;
- NAME-uneven.npz: nine classes, whose sizes follow a power law, with all edges between their nodes.

Other graphs are rewired if you name them. The spaces in archives/ that read these files say so.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import scipy.sparse

import hagmeta
from hagmeta.datasets.base import Dataset

SMALL = {"debian": 4000, "metamath": 5000, "wordnet": 5000}
REWIRED = ("foldoc", "kanji", "metamath")
UNEVEN = ("debian", "foldoc", "metamath", "wordnet")
CLASSES, EXPONENT, SMALLEST = 9, 1.3, 60  # of the uneven graphs


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graphs", nargs="*", metavar="GRAPH", help="other graphs to rewire: names or files")
    names = parser.parse_args().graphs
    random = np.random.default_rng(0)
    for name, size in SMALL.items():
        whole = hagmeta.load(name)
        kept = np.sort(np.random.default_rng(0).choice(whole.num_nodes, size, replace=False))
        _write(f"{name}-small", whole, kept, whole.edges)
    for name in (*REWIRED, *names):
        whole = hagmeta.load(name)
        _write(f"{Path(name).stem}-rewired", whole, np.arange(whole.num_nodes), _rewired(whole, random))
    for name in UNEVEN:
        whole = hagmeta.load(name)
        _write(f"{name}-uneven", whole, _uneven(whole.labels, random), whole.edges)


def _rewired(graph: Dataset, random: np.random.Generator) -> np.ndarray:
    """Return edges (edges, 2) between random nodes: ends are shuffled, so that a node keeps its degree."""
    return graph.edges.T.reshape(-1)[random.permutation(2 * len(graph.edges))].reshape(-1, 2)


def _uneven(labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return nodes of the largest classes in ascending order; class sizes fall by a power law."""
    sizes = np.bincount(labels[labels >= 0])
    largest = np.argsort(-sizes, kind="stable")[:CLASSES]
    kept = []
    for rank, label in enumerate(largest, start=1):
        size = min(sizes[label], max(int(sizes[largest[0]] / rank**EXPONENT), SMALLEST))
        kept.append(random.choice(np.flatnonzero(labels == label), size, replace=False))
    return np.sort(np.concatenate(kept))


def _write(name: str, whole: Dataset, kept: np.ndarray, edges: np.ndarray) -> None:
    place = np.full(whole.num_nodes, -1)
    place[kept] = np.arange(len(kept))
    edges = place[edges]
    features = scipy.sparse.csr_matrix(whole.features[kept])
    np.savez_compressed(
        f"{name}.npz",
        edges=edges[(edges >= 0).all(-1)],
        labels=whole.labels[kept],
        feature_indptr=features.indptr,
        feature_indices=features.indices,
        num_features=whole.num_features,
        class_names=np.array(whole.class_names),
    )
    print(f"{name}.npz: {len(kept):,} of {whole.num_nodes:,} nodes")


if __name__ == "__main__":
    main()
