"""What a method must say. It is written for one seed; the pack runs it for many."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hagmeta.config import RunConfig
from hagmeta.nn.encoder import make_encoder
from hagmeta.packs.pack import State
from hagmeta.packs.randomness import seeded
from hagmeta.sparse.graph import ClassMeans, Graph, View


class Task(NamedTuple):
    """The classes met so far, in the order they came, and nodes to classify among them.

    The classes known by many labelled nodes come first, then those known by K supports.
    """

    classes: Tensor  # (classes,) which classes of the dataset they are
    many: Tensor  # (classes known by many,) their rows in Scene.class_means
    support: Tensor  # (classes known by few, shots) nodes
    query: Tensor  # (queries,) nodes
    recalled: tuple[Tensor, ...] = ()  # what ``Method.recall`` gave when the session began

    def on(self, device: torch.device) -> Task:
        """The same on a device."""
        classes, many, support, query = (part.to(device) for part in self[:4])
        return Task(classes, many, support, query, self.recalled)


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
    classes: int  # of the whole dataset


class MetaTraining(Enum):
    """What a method learns from between the encoder's pre-training and the first session."""

    NONE = "nothing"
    INCREMENTAL = "pseudo-incremental episodes of base and novel-train classes (GPIL)"
    ORDINARY = "N-way K-shot episodes of novel-train classes"
    SUPERVISED = "labelled nodes of all base and novel-train classes at once"


class Lesson(Enum):
    """What the gradient steps of a session learn from under `strict`."""

    NONE = "there are none"
    HELD_OUT = "one support a class, predicted from its others, and train nodes of known classes"
    REPLAY = "the new supports, and the nodes kept of the classes met before"


class Method(nn.Module, ABC):
    """A learning system. ``key`` draws dropout; without one a method is in evaluation mode."""

    settings: ClassVar[Mapping[str, Any]] = {}  # those that the method decides, whatever is configured
    meta_training: ClassVar[MetaTraining] = MetaTraining.INCREMENTAL
    lesson: ClassVar[Lesson] = Lesson.HELD_OUT
    freezes: ClassVar[bool] = False  # the encoder neither learns nor drops out: see ``propagate``
    oracle: ClassVar[bool] = False  # knows what no method may: the train labels of every class met
    grows: ClassVar[bool] = False  # has parameters of its own for each class, which ``meet`` starts
    doubles: ClassVar[bool] = False  # repeats the authors' slip under `released`: see there

    def __init__(self, config: RunConfig, sizes: Sizes, seed: int) -> None:
        super().__init__()
        self.encoder = seeded(seed, "init/encoder", lambda: make_encoder(sizes.features, config))
        self.encoder.requires_grad_(not self.freezes)

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
        """The loss of one step of meta-training, and the logits (queries, classes) behind it."""

    def session_loss(
        self, scene: Scene, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The same in a session; its classes are the last of the task."""
        return self.loss(scene, view, task, target, key)

    def meet(self, scene: Scene, new: int, view: View, task: Task) -> State:
        """The parameters that change when the last ``new`` classes of a task are met for the first time."""
        raise NotImplementedError

    def recall(self, scene: Scene, view: View, task: Task) -> tuple[Tensor, ...]:
        """What is to be remembered, while a session lasts, of the model as it was before."""
        return ()

    @classmethod
    def select(
        cls, config: RunConfig, embeddings: list[np.ndarray], logits: list[np.ndarray], size: int
    ) -> list[np.ndarray]:
        """Positions of the at most ``size`` nodes to keep of each class that was just learnt, for replay.

        Of every class there are its candidates' embeddings (nodes, width) and logits (nodes, classes met).
        """
        raise NotImplementedError

    def propagate(self, graph: Graph, view: View) -> Tensor:
        """What a frozen encoder makes of every node; in meta-training it is there as ``view.propagated``."""
        return self.encoder.propagate(graph, view, None)

    def logits(self, scene: Scene, view: View, tasks: tuple[Task, ...]) -> tuple[Tensor, ...]:
        """Logits of each task after one pass over the graph, in evaluation mode."""
        encoded = self.encode(scene, view, None)
        return tuple(self.classify(scene, encoded, task) for task in tasks)

    def embeddings(self, scene: Scene, view: View, nodes: Tensor) -> Tensor:
        """Embeddings (nodes, width) of some nodes, in evaluation mode."""
        return self.encoder(scene.graph, view, None).at(nodes)

    def forward(self, step: str, *arguments: Any) -> Any:
        """``torch.func.functional_call`` reaches every step of a method through here."""
        return getattr(self, step)(*arguments)
