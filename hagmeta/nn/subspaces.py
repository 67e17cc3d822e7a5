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
LEAST = 1e-12  # share of all variance below which a column is noise


def leading_words(graph: Graph, view: View, columns: int, rounds: int = 4) -> Tensor:
    """The visible nodes' tf-idf (nodes, columns) in the basis of its leading right singular vectors."""
    words = _start(graph.num_features, columns + MORE, graph.device)
    for _ in range(rounds):
        rows = graph.narrow_inputs(view, words)
        words = _orthonormal(graph.narrow_words(view, rows))
    rows = graph.narrow_inputs(view, words)
    _, vectors = torch.linalg.eigh((rows.mT @ rows).double())
    return rows @ vectors[:, -min(columns, rows.shape[1]) :].float()


def spectrum(graph: Graph, view: View, columns: int, rounds: int = 6) -> Tensor:
    """Leading eigenvectors (nodes, columns) of the visible graph's propagation, times squared eigenvalues."""
    basis = _start(graph.num_nodes, columns + MORE, graph.device) * view.visible.unsqueeze(-1)
    for _ in range(rounds):
        basis = _orthonormal(graph.aggregate(graph.aggregate(basis, view), view))
    within = (basis.mT @ graph.aggregate(basis, view)).double()
    values, vectors = torch.linalg.eigh((within + within.mT) / 2)
    largest = values.abs().argsort(descending=True)[: min(columns, len(values))]
    return basis @ (vectors[:, largest] * values[largest].square()).float()


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
