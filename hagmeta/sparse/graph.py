"""The graph on its device, and the part of it that each seed sees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from hagmeta.common.settings import setting
from hagmeta.datasets.base import Dataset
from hagmeta.packs.device import gpu_usable
from hagmeta.packs.randomness import dropout_scale, dropout_threshold, relu_dropout
from hagmeta.sparse.inputs import Inputs, InputSettings, make_inputs
from hagmeta.sparse.matrices import DenseMatrix, SeedwiseMatrix, SparseMatrix, SymmetricMatrix
from hagmeta.sparse.plain_matrix import PlainMatrix, PlainSparseMatrix
from hagmeta.sparse.products import aggregate, aggregate_at, hidden_layer, matmul, matmul_transposed

if TYPE_CHECKING or gpu_usable():
    from hagmeta.sparse import attention_kernels


@dataclass(frozen=True, kw_only=True)
class GraphSettings(InputSettings):
    """The inputs and the normalisation of propagation."""

    normalisation: str = setting(
        "visible",
        "degrees that normalise propagation: those of the visible graph, or of the whole graph",
        choices=("visible", "whole"),
        birth="visible",
    )


class View(NamedTuple):
    """What can be seen: other nodes, such as those of classes not yet met, and their edges take no part."""

    visible: Tensor  # (nodes,) 1 or 0
    scale: Tensor  # (nodes,) visible / sqrt(neighbours + 1): the visible ones, or all
    log_degree: Tensor  # (nodes,) log(visible neighbours + 1)
    propagated: tuple[Tensor, ...] = ()  # what no step changes, once for all of them
    settled: tuple[Tensor, ...] = ()  # what no step of a session changes, once its labels are known
    inputs: tuple[Tensor, ...] = ()  # ``Inputs``, words and rows, where features do not enter as they are
    narrow: tuple[Tensor, ...] = ()  # the same for few columns, of methods that propagate them as they are


class Graph:
    """Adjacency and features, the same for every seed and never rebuilt: only the view changes."""

    adjacency: SymmetricMatrix
    features: SparseMatrix | DenseMatrix | PlainMatrix

    def __init__(
        self, dataset: Dataset, device: torch.device, normalisation: str = GraphSettings.normalisation
    ) -> None:
        self.normalisation = normalisation
        self.num_nodes = dataset.num_nodes
        self.num_features = dataset.num_features
        self.has_counts = dataset.has_counts
        self.device = device
        self.loops = dataset.adjacency
        self._host_features = dataset.features
        self._put_on_device(dataset)

    def _put_on_device(self, dataset: Dataset) -> None:
        self.adjacency = SymmetricMatrix(self.loops, self.device)
        if isinstance(dataset.features, np.ndarray):
            self.features = DenseMatrix(torch.from_numpy(dataset.features).to(self.device))
        else:
            self.features = SparseMatrix(dataset.features, self.device)

    def view(self, visible: np.ndarray) -> View:
        """Views of a pack, (pack, nodes) each, from a boolean array of that shape."""
        mask = torch.from_numpy(visible).to(self.device, torch.float32)
        degree = self.adjacency.product(mask.T.contiguous()).T.contiguous()  # self included
        counted = degree if self.normalisation == "visible" else self.degree
        scale = mask / counted.clamp(min=1).sqrt()
        return View(mask, scale, degree.clamp(min=1).log())

    def inputs(self, kind: str, visible: np.ndarray) -> Inputs:
        """A seed's inputs that are not raw, on the host, from what it sees (nodes,) at the start."""
        return make_inputs(kind, self._host_features, visible)

    def mapped(self, weight: Tensor, view: View) -> Tensor:
        """The inputs of every node times a weight (inputs, width)."""
        if not view.inputs:
            return matmul(self.features, weight)
        words, rows = view.inputs
        # Factors come second: a product lies in memory as its first operand does, seeds beside the columns.
        weight = words @ weight if words.dim() == 2 else weight * words.unsqueeze(-1)
        return matmul(self.features, weight) * rows.unsqueeze(-1)

    def dense_inputs(self, view: View, nodes: Tensor) -> Tensor:
        """Return the inputs of some nodes (nodes,) of one seed, written out: (nodes, inputs)."""
        features = self._host_features[nodes.cpu().numpy()]
        if not view.inputs:
            dense = features if isinstance(features, np.ndarray) else features.toarray()
            return torch.from_numpy(dense).to(self.device, torch.float32)
        words, rows = view.inputs
        host = words.cpu().numpy()
        weighed = features @ host if host.ndim == 2 else features.multiply(host).toarray()
        return torch.from_numpy(weighed).to(self.device, torch.float32) * rows[nodes].unsqueeze(-1)

    def narrow_inputs(self, view: View, weight: Tensor) -> Tensor:
        """The narrow inputs (`View.narrow`) of every node times a weight; zeros where it is out of sight."""
        return self.mapped(weight, view._replace(inputs=view.narrow)) * view.visible.unsqueeze(-1)

    def narrow_words(self, view: View, rows: Tensor) -> Tensor:
        """The same transposed, where words are weighed one by one: (nodes, width) to (features, width)."""
        assert isinstance(self.features, (SparseMatrix, PlainSparseMatrix)), "words are sparse"
        words, scale = view.narrow
        rows = rows * (scale * view.visible).unsqueeze(-1)
        return matmul(self.features.transposed, rows) * words.unsqueeze(-1)

    @cached_property
    def degree(self) -> Tensor:
        """(nodes,) Neighbours in the whole graph, and the node itself."""
        return torch.from_numpy(self.loops.sum(1).A1).to(self.device, torch.float32)

    @cached_property
    def log_degree(self) -> Tensor:
        """(nodes,) log(neighbours in the whole graph); of a node without any 0, as of one with one."""
        return (self.degree - 1).clamp(min=1).log()

    def host_scale(self, visible: np.ndarray) -> np.ndarray:
        """A seed's ``View.scale`` (nodes,), on the host."""
        counted = visible if self.normalisation == "visible" else np.ones_like(visible)
        scale: np.ndarray = visible / np.sqrt(np.maximum(self.loops @ counted.astype(np.float32), 1))
        return scale

    def aggregate(self, hidden: Tensor, view: View, factor: float = 1.0) -> Tensor:
        """Kipf and Welling's propagation among the visible nodes, times ``factor``."""
        return aggregate(self.adjacency, _scaled(view, factor), hidden)

    def aggregate_at(self, hidden: Tensor, view: View, nodes: Tensor) -> Tensor:
        """The same for a few nodes (nodes,) only."""
        return aggregate_at(self.adjacency, view.scale, hidden, nodes)

    def neighbour_means(self, hidden: Tensor, view: View) -> Tensor:
        """Average rows (nodes, width) over each node's visible neighbours, without the node itself.

        Divide by the number of neighbours that ``view.scale`` counts. A node without any gets zeros.
        """
        around = self.aggregate(hidden, _unweighted(view))  # with the node itself
        own = hidden * view.visible.unsqueeze(-1)
        return (around - own) * neighbour_shares(view.scale).unsqueeze(-1)

    def neighbour_means_at(self, hidden: Tensor, view: View, nodes: Tensor) -> Tensor:
        """Average the same rows for a few nodes (nodes,) only."""
        around = self.aggregate_at(hidden, _unweighted(view), nodes)
        own = hidden[nodes] * view.visible[nodes].unsqueeze(-1)
        return (around - own) * neighbour_shares(view.scale)[nodes].unsqueeze(-1)

    def hidden_layer(
        self, mapped: Tensor, bias: Tensor, view: View, rate: float, key: Tensor | None
    ) -> Tensor:
        """Kipf and Welling's propagation with a bias, ReLU and, where there is a key, dropout."""
        scale = dropout_scale(rate, key)
        if not self.adjacency.on_gpu:
            return relu_dropout(self.aggregate(mapped, view, scale), scale * bias, rate, key)
        if rate == 0:
            key = None
        weights = _scaled(view, scale)
        return hidden_layer(self.adjacency, weights, mapped, scale * bias, key, dropout_threshold(rate))

    def class_means(self, members: list[scipy.sparse.csr_matrix], visible: np.ndarray) -> ClassMeans:
        """Averages over nodes, one matrix (classes, nodes) a seed, under a view of them."""
        return ClassMeans(self, members, visible)

    def attends_in_one_pass(self, width: int, heads: int) -> bool:
        """Whether graph attention of this shape needs nothing kept for an edge."""
        return self.adjacency.on_gpu and attention_kernels.fits(width, heads)

    @cached_property
    def edges(self) -> EdgeIndex:
        return EdgeIndex(self.loops, self.device)


def _scaled(view: View, factor: float) -> Tensor:
    """The weights of a propagation times ``factor``: each edge has them at both ends."""
    return view.scale if factor == 1 else view.scale * math.sqrt(factor)


def _unweighted(view: View) -> View:
    """Make propagation a plain sum over the visible nodes."""
    return view._replace(scale=view.visible)


def neighbour_shares(scale: Tensor) -> Tensor:
    """Return 1 / neighbours, from a ``View.scale`` of any shape; 0 for invisible nodes and those without."""
    neighbours = torch.where(scale > 0, scale, 1).pow(-2).round() - 1
    return torch.where(neighbours > 0, 1 / neighbours.clamp(min=1), 0)


class ClassMeans:
    """Averages embeddings over the nodes that a class is known by."""

    def __init__(self, graph: Graph, members: list[scipy.sparse.csr_matrix], visible: np.ndarray) -> None:
        self._graph, self._members, self._visible = graph, members, visible

    @cached_property
    def direct(self) -> SeedwiseMatrix | PlainSparseMatrix:
        """(classes, nodes): for embeddings that are there for every node."""
        return SeedwiseMatrix(self._members, self._graph.device)

    @cached_property
    def aggregated(self) -> SeedwiseMatrix | PlainMatrix:
        """The same after ``Graph.aggregate``: a last, linear layer need not be run for every node."""
        if self._graph.adjacency.on_gpu:
            return SeedwiseMatrix.from_transposed(self._aggregated_transposed())
        return SeedwiseMatrix(self._members_aggregated(), self._graph.device)

    @cached_property
    def neighbouring(self) -> SeedwiseMatrix | PlainMatrix:
        """The same after ``Graph.neighbour_means``."""
        if self._graph.adjacency.on_gpu:
            return SeedwiseMatrix.from_transposed(self._neighbouring_transposed())
        return SeedwiseMatrix(self._members_neighbouring(), self._graph.device)

    @cached_property
    def most_labels(self) -> int:
        """How many nodes all classes are averaged over, in the seed that has most."""
        return max(members.nnz for members in self._members)

    def nodes(self, classes: Tensor, multiple: int) -> tuple[Tensor, Tensor]:
        """The nodes (classes, most) that some classes are averaged over, ascending, and what each counts.

        ``most`` is a multiple of that number. Where a class has fewer nodes, others stand that count nothing.
        """
        share, nodes = self.shares(classes).sort(stable=True, dim=-1, descending=True)
        longest = max(int(np.diff(members.indptr).max()) for members in self._members)
        most = min(-(-longest // multiple) * multiple, self._graph.num_nodes)
        return nodes[:, :most], share[:, :most]

    def shares(self, classes: Tensor) -> Tensor:
        """What each node counts for some classes: (classes, nodes)."""
        rows = torch.arange(self._members[0].shape[0], device=classes.device)
        chosen = (rows.unsqueeze(-1) == classes).to(torch.float32)
        return matmul_transposed(self.direct, chosen).mT

    def _members_aggregated(self) -> list[scipy.sparse.csr_matrix]:
        """One matrix (classes, nodes) a seed, computed on the host."""
        loops = self._graph.loops
        matrices = []
        for members, visible in zip(self._members, self._visible, strict=True):
            weights = scipy.sparse.diags(self._graph.host_scale(visible).astype(np.float32))
            matrices.append((members @ weights @ loops @ weights).tocsr())
        return matrices

    def _members_neighbouring(self) -> list[scipy.sparse.csr_matrix]:
        """Return one matrix (classes, nodes) per seed, computed on the host."""
        loops = self._graph.loops
        neighbours = loops - scipy.sparse.identity(loops.shape[0], dtype=loops.dtype)
        matrices = []
        for members, visible in zip(self._members, self._visible, strict=True):
            scale = torch.from_numpy(self._graph.host_scale(visible).astype(np.float32))
            shares = scipy.sparse.diags(neighbour_shares(scale).numpy())
            seen = scipy.sparse.diags(visible.astype(np.float32))
            matrices.append((members @ shares @ neighbours @ seen).tocsr())
        return matrices

    def _aggregated_transposed(self) -> Tensor:
        """(nodes, pack, classes), computed on the device: on large graphs much faster."""
        return self._graph.adjacency.scaled_product(self._graph.view(self._visible).scale, self._averages())

    def _neighbouring_transposed(self) -> Tensor:
        """Return (nodes, pack, classes), computed on the device."""
        view = self._graph.view(self._visible)
        weighed = self._averages() * neighbour_shares(view.scale).T.unsqueeze(-1)
        return self._graph.adjacency.scaled_product(view.visible, weighed) - weighed

    def _averages(self) -> Tensor:
        """Return the averages themselves as (nodes, pack, classes), on the device."""
        device, pack = self._graph.device, len(self._members)
        averages = torch.zeros(self._graph.num_nodes, pack, self._members[0].shape[0], device=device)
        for seed, members in enumerate(self._members):
            entries = members.tocoo()
            node, label = (torch.from_numpy(index).long().to(device) for index in (entries.col, entries.row))
            averages[node, seed, label] = torch.from_numpy(entries.data).to(device)
        return averages


class EdgeIndex:
    """Every directed edge, loops included, as incidence matrices: gathering and summing are products."""

    def __init__(
        self,
        loops: scipy.sparse.csr_matrix,
        device: torch.device,
        matrix: type[SparseMatrix] | type[PlainSparseMatrix] = SparseMatrix,
    ) -> None:
        count = loops.nnz
        number = np.arange(count, dtype=np.int64)
        ones = np.ones(count, dtype=np.float32)
        shape = (loops.shape[0], count)
        self.into = matrix(scipy.sparse.csr_matrix((ones, number, loops.indptr), shape=shape), device)
        # The adjacency is symmetric: the edges that leave a node are the reverses of those that enter it.
        numbered = scipy.sparse.csr_matrix((number + 1, loops.indices, loops.indptr), shape=loops.shape)
        reverse = numbered.T.tocsr().data - 1
        self.out_of = matrix(scipy.sparse.csr_matrix((ones, reverse, loops.indptr), shape=shape), device)
