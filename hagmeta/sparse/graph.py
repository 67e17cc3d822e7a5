"""The graph on its device, and the part of it that each seed sees."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from hagmeta.datasets.base import Dataset
from hagmeta.packs.randomness import Rate, rate_of, relu_dropout
from hagmeta.sparse.fixed import DENSE_COST, FixedInputs, FixedInputsOnGpu, pays
from hagmeta.sparse.inputs import Fit, Inputs, apply_inputs, fit_inputs, make_inputs, width_of
from hagmeta.sparse.matrices import (
    DenseMatrix,
    DenseSeedwiseMatrix,
    EdgeIndex,
    SeedwiseMatrix,
    SparseMatrix,
    SymmetricMatrix,
)
from hagmeta.sparse.plain_matrix import PlainMatrix, PlainSparseMatrix
from hagmeta.sparse.products import (
    aggregate,
    aggregate_at,
    fixed_hidden_layer,
    fixed_product,
    hidden_layer,
    matmul,
    matmul_transposed,
    near,
    neighbourhood,
)

AGGREGATED, NEIGHBOURING = "aggregated", "neighbouring"  # how a first layer propagates its inputs


class View(NamedTuple):
    """The visible part of the graph, without nodes of future classes and without their edges."""

    visible: Tensor  # (nodes,) 1 or 0
    scale: Tensor  # (nodes,) visible / sqrt(neighbours + 1), counting visible neighbours or all
    log_degree: Tensor  # (nodes,) log(visible neighbours + 1)
    fixed_features: tuple[Tensor, ...] = ()  # the result of this hook, which no step changes
    session_statistics: tuple[Tensor, ...] = ()  # the result of this hook, which no step of a session changes
    inputs: tuple[Tensor, ...] = ()  # ``Inputs`` (words and rows), unless features are raw
    narrow: tuple[Tensor, ...] = ()  # inputs with few columns, for methods that propagate raw inputs
    pool: tuple[Tensor, ...] = ()  # `learnable`, unless it is `visible`

    @property
    def learnable(self) -> Tensor:
        """Return 1 for nodes that a method may learn from without labels, otherwise 0: (nodes,)."""
        return self.pool[0] if self.pool else self.visible


class Graph:
    """Adjacency matrix and features, shared by all seeds. Only the view changes."""

    adjacency: SymmetricMatrix
    features: SparseMatrix | DenseMatrix | PlainMatrix
    fixed: Mapping[str, FixedInputs] = {}  # propagated inputs by kind; see `propagated_once`

    def __init__(self, dataset: Dataset, device: torch.device, normalisation: str = "visible") -> None:
        self.normalisation = normalisation
        self.num_nodes = dataset.num_nodes
        self.num_features = dataset.num_features
        self.kind = dataset.kind
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
        """Return the views of a pack from a boolean array (pack, nodes)."""
        mask = torch.from_numpy(visible).to(self.device, torch.float32)
        degree = self.adjacency.product(mask.T.contiguous()).T.contiguous()  # includes the node itself
        counted = degree if self.normalisation == "visible" else self.degree
        scale = mask / counted.clamp(min=1).sqrt()
        return View(mask, scale, degree.clamp(min=1).log())

    def inputs(self, kind: str, visible: np.ndarray) -> Inputs:
        """Return the tf-idf or svd inputs of a seed, on the host, fitted on its ``visible`` nodes."""
        return make_inputs(kind, self._host_features, visible, self.kind)

    def fit_inputs(self, kind: str, visible: np.ndarray) -> Fit:
        """Return the fit of tf-idf or svd inputs on the ``visible`` nodes."""
        return fit_inputs(kind, self._host_features, visible, self.kind)

    def apply_inputs(self, fit: Fit) -> Inputs:
        """Return the inputs of all nodes for a ``fit``, which may come from another graph."""
        return apply_inputs(fit, self._host_features)

    def mapped(self, weight: Tensor, view: View, needed: Tensor | None = None) -> Tensor:
        """Return the inputs of every node times ``weight`` (inputs, width).

        Nodes where ``needed`` (nodes,) is 0 may be left out. Their rows are 0 then.
        """
        if not view.inputs:
            return matmul(self.features, weight, needed)
        words, rows = view.inputs
        # Factors come second: a product has the memory layout of its first operand (seeds next to columns).
        weight = words @ weight if words.dim() == 2 else weight * words.unsqueeze(-1)
        return matmul(self.features, weight, needed) * rows.unsqueeze(-1)

    def summed(self, weights: Tensor, view: View) -> Tensor:
        """Return weighted sums of inputs over all nodes: weights (nodes, sums) to (inputs, sums)."""
        if not view.inputs:
            return matmul(self.features.transposed, weights)
        words, rows = view.inputs
        sums = matmul(self.features.transposed, weights * rows.unsqueeze(-1))
        return words.mT @ sums if words.dim() == 2 else sums * words.unsqueeze(-1)

    def aggregated_inputs(self, weight: Tensor, view: View) -> Tensor:
        """Return `aggregate` of `mapped`, (nodes, width)."""
        if AGGREGATED in self.fixed:
            return fixed_product(self.fixed[AGGREGATED], weight)
        return self.aggregate(self.mapped(weight, view), view)

    @property
    def computes_parts(self) -> bool:
        """Whether `input_layer` costs much less around a few nodes than for all."""
        fixed = self.fixed.get(AGGREGATED)
        return self.leaves_out_rows if fixed is None else isinstance(fixed, FixedInputsOnGpu)

    def input_layer(
        self,
        weight: Tensor,
        bias: Tensor,
        view: View,
        rate: float | Rate,
        key: Tensor | None,
        around: Tensor | None = None,
    ) -> Tensor:
        """Return `hidden_layer` of `mapped`, (nodes, width).

        With ``around`` (nodes,), only the rows that `aggregate_at` reads for these nodes need to be right.
        """
        if not self.computes_parts:
            around = None
        if AGGREGATED in self.fixed:
            rows = None if around is None else near(self.adjacency, view.scale, around)
            return self._fixed_layer(weight, bias, rate, key, rows)
        if around is None:
            return self.hidden_layer(self.mapped(weight, view, view.visible), bias, view, rate, key)
        needed, mapped = self.neighbourhood(view, around)
        return self.hidden_layer(self.mapped(weight, view, mapped), bias, view, rate, key, needed)

    def _fixed_layer(
        self, weight: Tensor, bias: Tensor, rate: float | Rate, key: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        fixed, rate = self.fixed[AGGREGATED], rate_of(rate, self.device)
        if not rate.drops:
            key = None
        if key is not None:
            weight, bias = weight * rate.scale, bias * rate.scale
        if not isinstance(fixed, FixedInputsOnGpu):
            return relu_dropout(fixed_product(fixed, weight), bias, rate, key)
        return fixed_hidden_layer(fixed, weight, bias, key, rate.threshold, rows)

    def pays_once(self, inputs: str, steps: int, columns: int) -> bool:
        """Return whether `propagated_once` saves time, for `steps` that propagate `columns` columns each.

        The answer depends on the dataset and the configuration only, not on the device or the pack.
        """
        features, width = self._host_features, width_of(inputs, self.num_features)
        dense = isinstance(features, np.ndarray)
        if inputs != "svd":  # both ways have a dense product, or both have none
            return dense and pays(steps, columns, width, self.loops.nnz, 0)
        entries = int(DENSE_COST * features.size) if isinstance(features, np.ndarray) else features.nnz
        return pays(steps, columns, width, self.loops.nnz + entries, width * self.num_nodes)

    @torch.no_grad()
    def propagated_once(self, kinds: Iterable[str], view: View, seeds: Sequence[int]) -> Graph:
        """Return this graph with the propagated inputs of one view, which its first layers then use.

        Args:
            kinds: How first layers propagate: `AGGREGATED`, `NEIGHBOURING`.
            view: The view of each member of the pack.
            seeds: The seed of each member. Members with the same seed must have the same view.
        """
        firsts = {seed: seeds.index(seed) for seed in seeds}
        owner = [list(firsts).index(seed) for seed in seeds]
        rows = {member: view.visible[member].nonzero().squeeze(-1) for member in firsts.values()}
        other = copy(self)
        fixed = FixedInputsOnGpu if self.adjacency.on_gpu else FixedInputs
        other.fixed = {
            kind: fixed(list(rows.values()), self._propagated(kind, view, rows), owner, self.num_nodes)
            for kind in kinds
        }
        return other

    def _propagated(self, kind: str, view: View, rows: Mapping[int, Tensor]) -> list[Tensor]:
        """Return the propagated inputs (rows, inputs) of some members, computed one by one to save memory."""
        found: list[Tensor] = []
        for member, chosen in rows.items():
            inputs = self._dense_inputs(member, view)
            weights = view.scale if kind == AGGREGATED else view.visible
            whole = aggregate(self.adjacency, weights[member], inputs)
            if kind == NEIGHBOURING:
                own = inputs * view.visible[member].unsqueeze(-1)
                whole = (whole - own) * neighbour_shares(view.scale[member]).unsqueeze(-1)
            found.append(whole[chosen])
        return found

    def _dense_inputs(self, member: int, view: View) -> Tensor:
        """Return the inputs (nodes, inputs) of a member on the device."""
        if not view.inputs:
            assert isinstance(self.features, DenseMatrix)
            return self.features.dense
        words, rows = (part[member] for part in view.inputs)
        return self.features.product(words) * rows.unsqueeze(-1)

    def dense_inputs(self, view: View, nodes: Tensor) -> Tensor:
        """Return the dense inputs (nodes, inputs) of some nodes of one seed."""
        features = self._host_features[nodes.cpu().numpy()]
        if not view.inputs:
            dense = features if isinstance(features, np.ndarray) else features.toarray()
            return torch.from_numpy(dense).to(self.device, torch.float32)
        words, rows = view.inputs
        host = words.cpu().numpy()
        weighed = features @ host if host.ndim == 2 else features.multiply(host).toarray()
        return torch.from_numpy(weighed).to(self.device, torch.float32) * rows[nodes].unsqueeze(-1)

    def narrow_inputs(self, view: View, weight: Tensor) -> Tensor:
        """Return the narrow inputs (`View.narrow`) of every node times ``weight``; 0 for invisible nodes."""
        return self.mapped(weight, view._replace(inputs=view.narrow)) * view.visible.unsqueeze(-1)

    def narrow_words(self, view: View, rows: Tensor) -> Tensor:
        """Return the transposed product for inputs weighted by word: (nodes, width) to (features, width)."""
        words, scale = view.narrow
        rows = rows * (scale * view.visible).unsqueeze(-1)
        return matmul(self.features.transposed, rows) * words.unsqueeze(-1)

    @cached_property
    def for_other_views(self) -> Graph:
        """Return this graph without propagated inputs, which are right for one view only."""
        other = copy(self)
        other.fixed = {}
        return other

    @cached_property
    def without_edges(self) -> Graph:
        """Return a graph with the same features whose nodes have no neighbours but themselves."""
        other = copy(self.for_other_views)
        for name in ("edges", "degree", "log_degree"):
            vars(other).pop(name, None)
        other.loops = scipy.sparse.identity(self.num_nodes, dtype=self.loops.dtype, format="csr")
        other.adjacency = type(self.adjacency)(other.loops, self.device)
        return other

    @cached_property
    def degree(self) -> Tensor:
        """Return the number (nodes,) of neighbours in the whole graph plus one."""
        return torch.from_numpy(self.loops.sum(1).A1).to(self.device, torch.float32)

    @cached_property
    def log_degree(self) -> Tensor:
        """Return log(neighbours in the whole graph), (nodes,); 0 for nodes without neighbours."""
        return (self.degree - 1).clamp(min=1).log()

    def host_scale(self, visible: np.ndarray) -> np.ndarray:
        """Return ``View.scale`` (nodes,) of a seed on the host."""
        counted = visible if self.normalisation == "visible" else np.ones_like(visible)
        scale: np.ndarray = visible / np.sqrt(np.maximum(self.loops @ counted.astype(np.float32), 1))
        return scale

    def aggregate(self, hidden: Tensor, view: View, factor: float | Tensor = 1.0) -> Tensor:
        """Return the propagation of Kipf and Welling among visible nodes, times ``factor``."""
        return aggregate(self.adjacency, _scaled(view, factor), hidden)

    def aggregate_at(self, hidden: Tensor, view: View, nodes: Tensor) -> Tensor:
        """Return the propagation for some nodes (nodes,) only."""
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
        self,
        mapped: Tensor,
        bias: Tensor,
        view: View,
        rate: float | Rate,
        key: Tensor | None,
        needed: Tensor | None = None,
    ) -> Tensor:
        """Return a GCN layer (Kipf and Welling) with bias and ReLU, and with dropout if there is a key.

        Nodes where ``needed`` (nodes,) is 0 may be left out. Their rows are 0 then.
        """
        rate = rate_of(rate, self.device)
        if not rate.drops:
            key = None
        if key is not None:
            view, bias = view._replace(scale=view.scale * rate.root), bias * rate.scale
        return hidden_layer(self.adjacency, view.scale, mapped, bias, key, rate.threshold, needed)

    @property
    def leaves_out_rows(self) -> bool:
        """Return whether products compute only the rows that are needed."""
        return self.adjacency.leaves_out_rows

    def neighbourhood(self, view: View, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Mark (nodes,) the visible neighbours of some nodes, and in turn their neighbours."""
        return neighbourhood(self.adjacency, view.scale, nodes)

    def class_means(self, members: list[scipy.sparse.csr_matrix], visible: np.ndarray) -> ClassMeans:
        """Return class means. ``members`` has one matrix (classes, nodes) of weights per seed."""
        return ClassMeans(self, members, visible)

    def attends_in_one_pass(self, width: int, heads: int) -> bool:
        """Return whether graph attention of this shape can run without memory per edge."""
        return self.adjacency.rows.attends(width, heads)

    @cached_property
    def edges(self) -> EdgeIndex:
        return EdgeIndex(self.loops, self.device)


def _scaled(view: View, factor: float | Tensor) -> Tensor:
    """Return propagation weights that give ``factor`` times the result. Each edge uses them at both ends."""
    if isinstance(factor, Tensor):
        return view.scale * factor.sqrt()
    return view.scale if factor == 1 else view.scale * math.sqrt(factor)


def _unweighted(view: View) -> View:
    """Return a view whose propagation is a plain sum over visible nodes."""
    return view._replace(scale=view.visible)


def neighbour_shares(scale: Tensor) -> Tensor:
    """Return 1 / neighbours from a ``View.scale``; 0 for invisible nodes and nodes without neighbours."""
    neighbours = torch.where(scale > 0, scale, 1).pow(-2).round() - 1
    return torch.where(neighbours > 0, 1 / neighbours.clamp(min=1), 0)


class ClassMeans:
    """Averages embeddings over the labelled nodes of each class."""

    def __init__(self, graph: Graph, members: list[scipy.sparse.csr_matrix], visible: np.ndarray) -> None:
        self._graph, self._members, self._visible = graph, members, visible

    @cached_property
    def direct(self) -> SeedwiseMatrix | PlainSparseMatrix:
        """Return the averaging matrix (classes, nodes) for embeddings of all nodes."""
        return SeedwiseMatrix(self._members, self._graph.device)

    @cached_property
    def aggregated(self) -> SeedwiseMatrix | DenseSeedwiseMatrix | PlainMatrix:
        """Return the averaging matrix after ``Graph.aggregate``.

        With it, a last linear layer need not run for every node.
        """
        if self._graph.adjacency.on_gpu:
            return SeedwiseMatrix.from_transposed(self._aggregated_transposed())
        return SeedwiseMatrix(self._members_aggregated(), self._graph.device)

    @cached_property
    def neighbouring(self) -> SeedwiseMatrix | DenseSeedwiseMatrix | PlainMatrix:
        """Return the averaging matrix after ``Graph.neighbour_means``."""
        if self._graph.adjacency.on_gpu:
            return SeedwiseMatrix.from_transposed(self._neighbouring_transposed())
        return SeedwiseMatrix(self._members_neighbouring(), self._graph.device)

    @cached_property
    def most_labels(self) -> int:
        """Return the number of averaged nodes of all classes, in the seed with most of them."""
        return max(members.nnz for members in self._members)

    def nodes(self, classes: Tensor, multiple: int) -> tuple[Tensor, Tensor]:
        """Return the averaged nodes (classes, most) of some classes, ascending, and their weights.

        ``most`` is a multiple of ``multiple``. Classes with fewer nodes are padded with nodes of weight 0.
        """
        share, nodes = self.shares(classes).sort(stable=True, dim=-1, descending=True)
        longest = max(int(np.diff(members.indptr).max()) for members in self._members)
        most = min(-(-longest // multiple) * multiple, self._graph.num_nodes)
        return nodes[:, :most], share[:, :most]

    def shares(self, classes: Tensor) -> Tensor:
        """Return the weight of each node for some classes: (classes, nodes)."""
        rows = torch.arange(self._members[0].shape[0], device=classes.device)
        chosen = (rows.unsqueeze(-1) == classes).to(torch.float32)
        return matmul_transposed(self.direct, chosen).mT

    def _members_aggregated(self) -> list[scipy.sparse.csr_matrix]:
        """Return one matrix (classes, nodes) per seed, computed on the host after ``Graph.aggregate``."""
        loops = self._graph.loops
        scales = (self._graph.host_scale(visible).astype(np.float32) for visible in self._visible)
        pairs = zip(self._members, map(scipy.sparse.diags, scales), strict=True)
        return [(members @ weights @ loops @ weights).tocsr() for members, weights in pairs]

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
        """Return (nodes, pack, classes), computed on the device, which is much faster on large graphs."""
        scale = self._graph.view(self._visible).scale
        return self._graph.adjacency.rows.product(self._averages(), scale, scale)

    def _neighbouring_transposed(self) -> Tensor:
        """Return (nodes, pack, classes), computed on the device."""
        view = self._graph.view(self._visible)
        weighed = self._averages() * neighbour_shares(view.scale).T.unsqueeze(-1)
        return self._graph.adjacency.rows.product(weighed, view.visible, view.visible) - weighed

    def _averages(self) -> Tensor:
        """Return the averaging weights as (nodes, pack, classes) on the device."""
        device, pack = self._graph.device, len(self._members)
        averages = torch.zeros(self._graph.num_nodes, pack, self._members[0].shape[0], device=device)
        for seed, members in enumerate(self._members):
            entries = members.tocoo()
            node, label = (torch.from_numpy(index).long().to(device) for index in (entries.col, entries.row))
            averages[node, seed, label] = torch.from_numpy(entries.data).to(device)
        return averages
