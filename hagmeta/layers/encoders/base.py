"""The interface of an encoder, which turns features and a graph into embeddings.

An encoder returns an `Embedding`, which computes embeddings on request. A training step needs a few hundred
nodes and the means of some classes, not every node of the graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from hagmeta.common.settings.domains import Number, Whole
from hagmeta.common.settings.setting import BY_METHOD, setting
from hagmeta.sparse.graph import ClassMeans, Graph, View
from hagmeta.sparse.inputs import GraphSettings
from hagmeta.sparse.products import matmul


@dataclass(frozen=True, kw_only=True)
class LayerSettings(GraphSettings):
    """Settings that every encoder uses."""

    hidden: int = setting(
        BY_METHOD,
        "width of the encoder's first layer",
        Whole(at_least=1, at_most=4096),
        scope="method",
    )
    embedding: int = setting(
        BY_METHOD,
        "width of the encoder's output",
        Whole(at_least=1, at_most=4096),
        scope="method",
    )
    dropout: float = setting(
        0.5,
        "dropout rate of the hidden units in training",
        Number(at_least=0, below=1),
        scope="method",
        branches=(0,),
    )


class Embedding(ABC):
    """The embeddings of the nodes of a graph, computed on request."""

    @abstractmethod
    def all(self) -> Tensor:
        """Return the embeddings of all nodes (nodes, width)."""

    @abstractmethod
    def at(self, nodes: Tensor) -> Tensor:
        """Return the embeddings of `nodes` (nodes, width)."""

    @abstractmethod
    def means(self, class_means: ClassMeans) -> Tensor:
        """Return the averages over the labelled nodes of each class (classes, width)."""


@dataclass(frozen=True)
class EveryNode(Embedding):
    """Embeddings that are already computed for every node."""

    embeddings: Tensor  # (nodes, width)

    def all(self) -> Tensor:
        return self.embeddings

    def at(self, nodes: Tensor) -> Tensor:
        return self.embeddings[nodes]

    def means(self, class_means: ClassMeans) -> Tensor:
        return matmul(class_means.direct, self.embeddings)


class Encoder(nn.Module, ABC):
    """Base class of all encoders.

    `propagate` runs over every node. `embedding` then computes only what is requested.
    """

    own_settings: ClassVar[type[LayerSettings] | None] = None  # for plug-ins; must inherit from LayerSettings
    propagates: ClassVar[str] = (
        ""  # how the first layer propagates inputs (`sparse.graph`); empty: it does not
    )
    packs: ClassVar[bool] = True  # whether seeds can run together under `torch.func.vmap`

    def __init__(self, num_features: int, settings: Any, *, twice: bool = False) -> None:
        """Create the parameters. `twice` says that the encoder will be differentiated twice."""
        super().__init__()

    @classmethod
    def check(cls, settings: Any) -> None:
        """Raise a UserError for combinations of settings that are not valid."""

    @classmethod
    def first_width(cls, settings: Any) -> int:
        """Return the width of the first layer."""
        width: int = settings.hidden
        return width

    @abstractmethod
    def propagate(self, graph: Graph, view: View, key: Tensor | None) -> Tensor:
        """Return a row per node (nodes, columns). It depends only on the view, the key and the parameters."""

    @abstractmethod
    def embedding(self, graph: Graph, view: View, propagated: Tensor) -> Embedding:
        """Return the embeddings, given the rows that `propagate` returned."""

    def forward(self, graph: Graph, view: View, key: Tensor | None) -> Embedding:
        return self.embedding(graph, view, self.propagate(graph, view, key))
