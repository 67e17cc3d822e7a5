"""Which sparse product is fastest on a CPU: what `hagmeta.sparse.matrices` uses, beside the others there are.

    python benchmarks/sparse_kernels.py [--threads 1 2]

Milliseconds of matrix @ dense, the least of several; `gain` is the fastest against embedding_bag.
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
from hagmeta.common.home import home

WIDTHS = (16, 32, 64, 320, 640)  # one and ten seeds' embedding, hidden layer, and twice that
SECONDS = 1.0  # spent on a kernel
DATASETS = ("debian", "synthetic-amazon-clothing")


def kernels(matrix: scipy.sparse.csr_matrix) -> dict[str, Callable[[Tensor], object]]:
    """The same product four ways; ones are no weights to embedding_bag, as in `hagmeta.sparse.matrices`."""
    offsets, columns = (torch.from_numpy(a.astype(np.int32)) for a in (matrix.indptr, matrix.indices))
    values = torch.from_numpy(matrix.data.astype(np.float32))
    weights = values if bool((values != 1).any()) else None
    csr = torch.sparse_csr_tensor(offsets, columns, values, matrix.shape)
    return {
        "embedding_bag": lambda dense: F.embedding_bag(
            columns, dense, offsets, mode="sum", include_last_offset=True, per_sample_weights=weights
        ),
        "sparse.mm sum": lambda dense: torch.sparse.mm(csr, dense, "sum"),
        "csr @ dense": lambda dense: csr @ dense,
        "scipy": lambda dense: matrix @ dense.numpy(),
    }


def milliseconds(kernel: Callable[[Tensor], object], dense: Tensor) -> float:
    kernel(dense)
    times, end = [], time.perf_counter() + SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        kernel(dense)
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def matrices() -> dict[str, scipy.sparse.csr_matrix]:
    found = {}
    for name in DATASETS:
        dataset = datasets.load(name, home() / "data")
        found[f"{name} features"] = dataset.features
        found[f"{name} features, transposed"] = dataset.features.T.tocsr()
        found[f"{name} adjacency"] = dataset.adjacency
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="Sparse")  # in beta; invariants not checked
    for name, matrix in matrices().items():
        print(f"\n{name}: {matrix.shape[0]:,} x {matrix.shape[1]:,}, {matrix.nnz:,} entries")
        several = kernels(matrix)
        print("threads width" + "".join(f"{kernel:>15}" for kernel in several) + "           gain")
        for threads in options.threads:
            torch.set_num_threads(threads)
            for width in WIDTHS:
                dense = torch.randn(matrix.shape[1], width)
                times = {key: milliseconds(kernel, dense) for key, kernel in several.items()}
                best = min(times, key=times.__getitem__)
                gain = times["embedding_bag"] / times[best]
                cells = "".join(f"{value:15.2f}" for value in times.values())
                print(f"{threads:7} {width:5}{cells}{gain:8.2f} x {best if gain > 1 else ''}", flush=True)


if __name__ == "__main__":
    main()
