"""The graph of plain mode: the computations of ``Graph`` in ordinary torch operations, for one seed.

It uses no ``vmap`` and no kernels, so debuggers, ``print`` and profilers see every step. Results equal those
of a pack with one seed, up to the order of sums.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse
import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.datasets.base import Dataset
from hagmeta.packs.randomness import Rate, dropout
from hagmeta.sparse.graph import ClassMeans, Graph, View
from hagmeta.sparse.matrices import EdgeIndex
from hagmeta.sparse.plain_matrix import PlainDenseMatrix, PlainSparseMatrix


class PlainGraph(Graph):
    """The graph of plain mode. Views have a pack axis of size one, which ``PlainPack.run`` removes."""

    adjacency: PlainSparseMatrix  # type: ignore[assignment]  # only one-pass attention needs the kernels

    def _put_on_device(self, dataset: Dataset) -> None:
        self.adjacency = PlainSparseMatrix(self.loops, self.device)
        if isinstance(dataset.features, np.ndarray):
            self.features = PlainDenseMatrix(torch.from_numpy(dataset.features).to(self.device))
        else:
            self.features = PlainSparseMatrix(dataset.features, self.device)

    def aggregate(self, hidden: Tensor, view: View, factor: float | Tensor = 1.0) -> Tensor:
        scale = view.scale.unsqueeze(-1)
        return factor * scale * self.adjacency.product(scale * hidden)

    def aggregate_at(self, hidden: Tensor, view: View, nodes: Tensor) -> Tensor:
        return self.aggregate(hidden, view).index_select(0, nodes)

    def hidden_layer(
        self,
        mapped: Tensor,
        bias: Tensor,
        view: View,
        rate: float | Rate,
        key: Tensor | None,
        needed: Tensor | None = None,
    ) -> Tensor:
        return dropout(F.relu(self.aggregate(mapped, view) + bias), rate, key)

    def class_means(self, members: list[scipy.sparse.csr_matrix], visible: np.ndarray) -> ClassMeans:
        return PlainClassMeans(self, members, visible)

    @property
    def leaves_out_rows(self) -> bool:
        return False

    def pays_once(self, inputs: str, steps: int, columns: int) -> bool:
        return False  # a debugger should see every product

    def attends_in_one_pass(self, width: int, heads: int) -> bool:
        return False

    @cached_property
    def edges(self) -> EdgeIndex:
        return EdgeIndex(self.loops, self.device, PlainSparseMatrix)


class PlainClassMeans(ClassMeans):
    """Class means of a single seed."""

    @cached_property
    def direct(self) -> PlainSparseMatrix:
        (members,) = self._members
        return PlainSparseMatrix(members, self._graph.device)

    @cached_property
    def aggregated(self) -> PlainSparseMatrix:
        (members,) = self._members_aggregated()
        return PlainSparseMatrix(members, self._graph.device)

    @cached_property
    def neighbouring(self) -> PlainSparseMatrix:
        (members,) = self._members_neighbouring()
        return PlainSparseMatrix(members, self._graph.device)
