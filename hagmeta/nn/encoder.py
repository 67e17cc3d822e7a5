"""What an encoder must say: how features and a graph become embeddings.

An encoder returns an `Embedding`, which computes what is asked of it: a training step needs a few hundred
nodes and the means of some classes, not every node of the graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from hagmeta.common.settings import BY_METHOD, setting
from hagmeta.sparse.graph import ClassMeans, Graph, GraphSettings, View
from hagmeta.sparse.products import matmul


@dataclass(frozen=True, kw_only=True)
class LayerSettings(GraphSettings):
    """What every encoder has."""

    hidden: int = setting(BY_METHOD, "width of the encoder's first layer", at_least=1, at_most=4096)
    embedding: int = setting(BY_METHOD, "width of the encoder's output", at_least=1, at_most=4096)
    dropout: float = setting(0.5, "dropout rate of the hidden units in training", at_least=0, below=1)


class Embedding(ABC):
    """Embeddings of a graph's nodes."""

    @abstractmethod
    def all(self) -> Tensor:
        """Of every node: (nodes, width)."""

    @abstractmethod
    def at(self, nodes: Tensor) -> Tensor:
        """Of some nodes: (nodes, width)."""

    @abstractmethod
    def means(self, class_means: ClassMeans) -> Tensor:
        """Averages over the nodes that classes are known by: (classes, width)."""


@dataclass(frozen=True)
class EveryNode(Embedding):
    """Embeddings that were computed for every node."""

    embeddings: Tensor  # (nodes, width)

    def all(self) -> Tensor:
        return self.embeddings

    def at(self, nodes: Tensor) -> Tensor:
        return self.embeddings[nodes]

    def means(self, class_means: ClassMeans) -> Tensor:
        return matmul(class_means.direct, self.embeddings)


class Encoder(nn.Module, ABC):
    """What runs over every node, and after it what is asked for."""

    own_settings: ClassVar[type[LayerSettings] | None] = None  # a plug-in's; they inherit from LayerSettings
    packs: ClassVar[bool] = True  # several seeds run as one, by ``torch.func.vmap``; otherwise one by one

    def __init__(self, num_features: int, settings: Any, *, twice: bool = False) -> None:
        """``twice`` where it will be differentiated twice."""
        super().__init__()

    @classmethod
    def check(cls, settings: Any) -> None:
        """Refuse settings that do not go together."""

    @abstractmethod
    def propagate(self, graph: Graph, view: View, key: Tensor | None) -> Tensor:
        """A row a node: (nodes, columns). It stays the same while view, key and parameters do."""

    @abstractmethod
    def embedding(self, graph: Graph, view: View, propagated: Tensor) -> Embedding:
        """The embeddings that such rows stand for."""

    def forward(self, graph: Graph, view: View, key: Tensor | None) -> Embedding:
        return self.embedding(graph, view, self.propagate(graph, view, key))
