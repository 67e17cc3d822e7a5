"""Few columns for every visible node: the leading directions of its words, and of the graph itself.

By subspace iteration with the graph's own products, from a start that is the same for every seed and device.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.sparse.graph import Graph, View

MORE = 16  # columns that are iterated beside those that are wanted
APART = 1e-2  # weight of the loops that tell equal eigenvalues apart
LEAST = 1e-12  # share of all variance below which a column is noise


def leading_words(graph: Graph, view: View, columns: int, rounds: int = 4) -> Tensor:
    """The visible nodes' tf-idf (nodes, columns) in the basis of its leading right singular vectors."""
    start = words = _start(graph.num_features, columns + MORE, graph.device)
    for _ in range(rounds):
        rows = graph.narrow_inputs(view, words)
        words = _orthonormal(graph.narrow_words(view, rows))
    rows = graph.narrow_inputs(view, words)
    _, vectors = torch.linalg.eigh((rows.mT @ rows).double())
    towards = (words.mT @ start[:, 0]).double()
    return rows @ _signed(vectors[:, -min(columns, rows.shape[1]) :], towards).float()


def spectrum(graph: Graph, view: View, columns: int, rounds: int = 6) -> Tensor:
    """Leading eigenvectors (nodes, columns) of the visible graph's propagation, times squared eigenvalues.

    Every component of the graph has the eigenvalue 1, so rounding would decide which combinations of their
    eigenvectors are found. A small random loop per node tells them apart. It rotates the columns only: how
    nodes lie to each other stays the same.
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
    """Turn eigenvectors (rows, columns) towards a vector (rows,): routines choose their signs differently.

    The vector should be random, so that no eigenvector is orthogonal to it by a symmetry of the graph.
    """
    return vectors * torch.where(towards @ vectors < 0, -1.0, 1.0)


def _start(rows: int, columns: int, device: torch.device) -> Tensor:
    drawn = np.random.default_rng(0).standard_normal((rows, min(columns, rows)), dtype=np.float32)
    return torch.from_numpy(drawn).to(device)


def _orthonormal(columns: Tensor) -> Tensor:
    """A basis (rows, columns) of the columns' span: by Cholesky in double precision, fast on any device."""
    exact = F.normalize(columns, dim=0).double()
    gram = exact.mT @ exact
    gram = gram + LEAST * gram.diagonal().sum() * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    root = torch.linalg.cholesky_ex(gram).L
    return torch.linalg.solve_triangular(root, exact.mT, upper=False).mT.float()
