"""Write small parts of embedded graphs: random nodes, with all edges between them.

    python benchmarks/small_graphs.py

Makes debian-small.npz, metamath-small.npz and wordnet-small.npz in the current folder, for
archives/regimes.yaml.
"""

from __future__ import annotations

import numpy as np

import hagmeta

SIZES = {"debian": 4000, "metamath": 5000, "wordnet": 5000}


def main() -> None:
    """Write the files."""
    for name, size in SIZES.items():
        whole = hagmeta.load(name)
        kept = np.sort(np.random.default_rng(0).choice(whole.num_nodes, size, replace=False))
        place = np.full(whole.num_nodes, -1)
        place[kept] = np.arange(size)
        edges = place[whole.edges]
        features = whole.features[kept]
        np.savez_compressed(
            f"{name}-small.npz",
            edges=edges[(edges >= 0).all(-1)],
            labels=whole.labels[kept],
            feature_indptr=features.indptr,
            feature_indices=features.indices,
            num_features=whole.num_features,
            class_names=np.array(whole.class_names),
        )
        print(f"{name}-small.npz: {size:,} of {whole.num_nodes:,} nodes")


if __name__ == "__main__":
    main()
