"""Which sparse product is fastest on a CPU: the one that `hagmeta.sparse` uses, compared with others.

    python benchmarks/sparse_kernels.py [--threads 1 2]

It prints milliseconds of matrix @ dense, the least of several. `half` is the compiled product of seeds that
see half of the nodes, as in training. `gain` compares the fastest with embedding_bag.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import scipy.sparse
import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta import datasets
from hagmeta.common.files.home import home
from hagmeta.sparse.numba.backend import NumbaBackend

WIDTHS = (16, 32, 64, 320, 640)  # of one seed and of ten: embedding, hidden layer, and twice the latter
SEED = 32  # columns of a seed, if there are several
SECONDS = 1.0  # per product
DATASETS = ("debian", "synthetic-amazon-clothing")


def products(matrix: scipy.sparse.csr_matrix, dense: Tensor) -> dict[str, Callable[[], object]]:
    """Return the same product in several ways. As in training, ones are no weights."""
    offsets, columns = (torch.from_numpy(a.astype(np.int32)) for a in (matrix.indptr, matrix.indices))
    values = torch.from_numpy(matrix.data.astype(np.float32))
    weights = values if bool((values != 1).any()) else None
    csr = torch.sparse_csr_tensor(offsets, columns, values, matrix.shape)
    rows = NumbaBackend(matrix)
    seeds = max(1, dense.shape[1] // SEED)
    by_seed = dense.unflatten(1, (seeds, -1)).movedim(1, 0).contiguous()
    seen = [(torch.rand(seeds, size) < 0.5).float() for size in matrix.shape]
    left, right = (seen[0], seen[0]) if matrix.shape[0] == matrix.shape[1] else (seen[0], None)
    return {
        "embedding_bag": lambda: F.embedding_bag(
            columns, dense, offsets, mode="sum", include_last_offset=True, per_sample_weights=weights
        ),
        "sparse.mm sum": lambda: torch.sparse.mm(csr, dense, "sum"),
        "csr @ dense": lambda: csr @ dense,
        "scipy": lambda: matrix @ dense.numpy(),
        "numba": lambda: rows.product(by_seed),
        "numba, half": lambda: rows.product(by_seed, left, right),
    }


def milliseconds(product: Callable[[], object]) -> float:
    product()
    times, end = [], time.perf_counter() + SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        product()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def some_matrices() -> dict[str, scipy.sparse.csr_matrix]:
    found = {}
    for name in DATASETS:
        dataset = datasets.load(name, home() / "data")
        found[f"{name} features"] = dataset.features
        found[f"{name} features, transposed"] = dataset.features.T.tocsr()
        found[f"{name} adjacency"] = dataset.adjacency
    return found


def compare_products(threads: list[int]) -> None:
    warnings.filterwarnings("ignore", message="Sparse")  # in beta; invariants not checked
    for name, matrix in some_matrices().items():
        print(f"\n{name}: {matrix.shape[0]:,} x {matrix.shape[1]:,}, {matrix.nnz:,} entries")
        names = products(matrix, torch.randn(matrix.shape[1], 1))
        print("threads width" + "".join(f"{name:>15}" for name in names) + "           gain")
        for count in threads:
            torch.set_num_threads(count)
            for width in WIDTHS:
                several = products(matrix, torch.randn(matrix.shape[1], width))
                times = {key: milliseconds(product) for key, product in several.items()}
                best = min(times, key=times.__getitem__)
                gain = times["embedding_bag"] / times[best]
                cells = "".join(f"{value:15.2f}" for value in times.values())
                print(f"{count:7} {width:5}{cells}{gain:8.2f} x {best if gain > 1 else ''}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    compare_products(parser.parse_args().threads)


if __name__ == "__main__":
    main()
