"""What a method must say. It is written for one seed; the pack runs it for many."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn

from hagmeta.config import RunConfig
from hagmeta.graph import ClassMeans, Graph, View
from hagmeta.nn.encoder import make_encoder
from hagmeta.randomness import seeded


class Task(NamedTuple):
    """The classes met so far, in the order they came, and nodes to classify among them.

    The classes known by many labelled nodes come first, then those known by K supports.
    """

    many: Tensor  # (classes known by many,) their rows in Scene.class_means
    support: Tensor  # (classes known by few, shots) nodes
    query: Tensor  # (queries,) nodes


@dataclass(frozen=True)
class Scene:
    """What stays the same from step to step while the view does."""

    graph: Graph
    class_means: ClassMeans  # a row a class, over the nodes that it is known by
    task_sizes: tuple[int, ...]  # how many classes came together, in order; the base task first


class Sizes(NamedTuple):
    """What a method must know of the data to make its parameters."""

    features: int
    base_classes: int
    n_way: int


class Method(nn.Module, ABC):
    """A learning system. ``key`` draws dropout; without one a method is in evaluation mode."""

    def __init__(self, config: RunConfig, sizes: Sizes, seed: int) -> None:
        super().__init__()
        self.encoder = seeded(seed, "init/encoder", lambda: make_encoder(sizes.features, config))

    @abstractmethod
    def encode(self, scene: Scene, view: View, key: Tensor | None) -> Any:
        """What a pass over the graph yields, for ``classify`` to use any number of times."""

    @abstractmethod
    def classify(self, scene: Scene, encoded: Any, task: Task) -> Tensor:
        """Logits (queries, classes)."""

    @abstractmethod
    def loss(
        self, scene: Scene, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The loss of one training step, and the logits (queries, classes) behind it."""

    def logits(self, scene: Scene, view: View, tasks: tuple[Task, ...]) -> tuple[Tensor, ...]:
        """Logits of each task after one pass over the graph, in evaluation mode."""
        encoded = self.encode(scene, view, None)
        return tuple(self.classify(scene, encoded, task) for task in tasks)

    def embed(self, scene: Scene, view: View, nodes: Tensor) -> Tensor:
        """Embeddings (nodes, width) of some nodes, in evaluation mode."""
        return self.encoder(scene.graph, view, None).at(nodes)

    def forward(self, step: str, *arguments: Any) -> Any:
        """``torch.func.functional_call`` reaches every step of a method through here."""
        return getattr(self, step)(*arguments)
