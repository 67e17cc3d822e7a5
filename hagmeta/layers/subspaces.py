"""Low-dimensional features of visible nodes: leading singular vectors of words, and graph eigenvectors.

Both use subspace iteration with sparse products, from a start that is the same for every seed and device.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.sparse.graph import Graph, View

MORE = 16  # extra columns, which speed up convergence
APART = 1e-2  # weight of the loops that separate equal eigenvalues
LEAST = 1e-12  # share of the total variance below which a column is noise


def leading_words(graph: Graph, view: View, columns: int, rounds: int = 4) -> Tensor:
    """Return the unit rows of visible nodes in the basis of their leading singular vectors (nodes, columns).

    The basis is computed from the nodes that may be learnt from.
    """
    start = words = _start(graph.num_features, columns + MORE, graph.device)
    for _ in range(rounds):
        rows = _of_pool(graph.narrow_inputs(view, words), view)
        words = _orthonormal(graph.narrow_words(view, rows))
    rows = graph.narrow_inputs(view, words)
    fitted = _of_pool(rows, view)
    _, vectors = torch.linalg.eigh((fitted.mT @ fitted).double())
    towards = (words.mT @ start[:, 0]).double()
    return rows @ _signed(vectors[:, -min(columns, rows.shape[1]) :], towards).float()


def _of_pool(rows: Tensor, view: View) -> Tensor:
    """Return `rows` (nodes, columns) with zeros for nodes that may not be learnt from."""
    return rows * view.learnable.unsqueeze(-1) if view.pool else rows


def spectrum(graph: Graph, view: View, columns: int, rounds: int = 6) -> Tensor:
    """Return leading eigenvectors (nodes, columns) of the propagation, times their squared eigenvalues.

    Every component of the visible graph has the eigenvalue 1, so rounding would decide which combinations of
    their eigenvectors are found. A small random self-loop per node separates them. It only rotates the
    columns, so distances between nodes do not change.
    """
    start = _start(graph.num_nodes, columns + MORE, graph.device)
    basis = start * view.visible.unsqueeze(-1)
    for _ in range(rounds):
        basis = _orthonormal(graph.aggregate(graph.aggregate(basis, view), view))
    within = (basis.mT @ graph.aggregate(basis, view)).double()
    values, vectors = torch.linalg.eigh((within + within.mT) / 2)
    largest = values.abs().argsort(descending=True)[: min(columns, len(values))]
    values, vectors = values[largest], vectors[:, largest]
    loops = (basis.mT @ (start[:, :1] * basis)).double()
    _, turned = torch.linalg.eigh(values.diag_embed() + APART * vectors.mT @ loops @ vectors)
    towards = (basis.mT @ start[:, 0]).double() @ vectors
    return basis @ (vectors * values.square() @ _signed(turned, towards)).float()


def _signed(vectors: Tensor, towards: Tensor) -> Tensor:
    """Return eigenvectors (rows, columns) with signs fixed by the vector `towards` (rows,).

    Eigenvalue routines choose signs differently. The vector should be random, so that no eigenvector is
    orthogonal to it by a symmetry of the graph.
    """
    return vectors * torch.where(towards @ vectors < 0, -1.0, 1.0)


def _start(rows: int, columns: int, device: torch.device) -> Tensor:
    drawn = np.random.default_rng(0).standard_normal((rows, min(columns, rows)), dtype=np.float32)
    return torch.from_numpy(drawn).to(device)


def _orthonormal(columns: Tensor) -> Tensor:
    """Return an orthonormal basis (rows, columns), by a Cholesky factor in double precision."""
    exact = F.normalize(columns, dim=0).double()
    gram = exact.mT @ exact
    gram = gram + LEAST * gram.diagonal().sum() * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    root = torch.linalg.cholesky_ex(gram).L
    return torch.linalg.solve_triangular(root, exact.mT, upper=False).mT.float()
