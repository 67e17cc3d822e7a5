"""What a method must say. It is written for one seed; the pack runs it for many."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from hagmeta.common.errors import UserError
from hagmeta.common.settings import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.nn.encoder import Encoder
from hagmeta.nn.encoders import EncoderSettings, make_encoder
from hagmeta.nn.prototypes import mean_prototypes
from hagmeta.packs.pack import Step
from hagmeta.packs.randomness import seeded
from hagmeta.sparse.graph import ClassMeans, Graph, View


@dataclass(frozen=True, kw_only=True)
class MethodSettings(EncoderSettings):
    """What every method is given. Settings of its own stand in a class that inherits from this."""

    method: str = setting("hag-meta", "method to run")

    @classmethod
    def unused_by(cls, method: Any) -> str:
        """All methods use these; a method's own are used by it, and not by methods that are built on it."""
        own = vars(method).get("own_settings")
        used = cls is MethodSettings or (own is not None and issubclass(own, cls))
        return "" if used else "it is a setting of other methods only"


class Task(NamedTuple):
    """The classes met so far, in the order they came, and nodes to classify among them.

    The classes of which only a prototype was kept come first, then those known by the average over many
    labelled nodes, then those known by K supports.
    """

    classes: Tensor  # (classes,) which classes of the dataset they are
    averaged: Tensor  # (classes known by averages,) their rows in Shared.class_means
    support: Tensor  # (classes known by supports, shots) nodes
    query: Tensor  # (queries,) nodes
    recalled: tuple[Tensor, ...] = ()  # what ``Method.recall`` gave before these steps
    kept: tuple[Tensor, ...] = ()  # what ``Method.keep`` gave, where labels are gone

    def on(self, device: torch.device) -> Task:
        """The same on a device."""
        classes, averaged, support, query = (part.to(device) for part in self[:4])
        return Task(classes, averaged, support, query, self.recalled, self.kept)


@dataclass(frozen=True)
class Shared:
    """What a step is given once for all seeds of a pack; the rest has a row for each."""

    graph: Graph
    class_means: ClassMeans  # a row a class, over the nodes that it is known by
    task_sizes: tuple[int, ...]  # how many classes came together, in order; the base task first


class Sizes(NamedTuple):
    """What a method must know of the data to make its parameters."""

    features: int  # that its first layer is given: see the setting inputs
    base_classes: int
    n_way: int
    classes: int  # of the whole dataset
    narrow: int = 0  # inputs of few columns, for methods that propagate them as they are
    nodes: int = 0  # of the whole dataset


class MetaTraining(Enum):
    """What a method learns from between the encoder's pre-training and the first session."""

    NONE = "nothing"
    INCREMENTAL = "pseudo-incremental episodes of base and novel-train classes (GPIL)"
    FEW_SHOT = "N-way K-shot episodes of novel-train classes"
    SUPERVISED = "labelled nodes of all base and novel-train classes at once"


class SessionLearning(Enum):
    """What the gradient steps of a session learn from, where the protocol leaves that to the method."""

    NONE = "there are none"
    HELD_OUT = "one support a class, predicted from its others, and train nodes of known classes"
    REPLAY = "the new supports, and the nodes kept of the classes met before"
    ANSWERS = "all labels that may be read, and the method's own answers for nodes without"


class Method(nn.Module, ABC):
    """A learning system, written for one seed. ``parts.py`` has small base classes for what few methods need.

    ``key`` draws dropout; without one a method is in evaluation mode.
    """

    own_settings: ClassVar[type[MethodSettings] | None] = None
    decides: ClassVar[Mapping[str, Any]] = {}  # settings that the method fixes, whatever is configured
    # What settings are, if not given, that have no default for all; a class adds to those of its bases.
    defaults: ClassVar[Mapping[str, Any]] = {
        "hidden": 32,
        "embedding": 16,
        "inputs": "raw",
        "classifier": "linear",
        "refitted": False,
        "tukey": 1.0,
        "random_features": 0,
    }
    traits: ClassVar[MethodTraits] = MethodTraits(title="Method")
    meta_training: ClassVar[MetaTraining] = MetaTraining.INCREMENTAL
    session_learning: ClassVar[SessionLearning] = SessionLearning.HELD_OUT
    freezes_encoder: ClassVar[bool] = False  # it neither learns nor drops out
    encoder: Encoder  # where ``new_encoder`` returns one

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Give a class without ``traits`` its own title; what it does, and its revision, are its parent's."""
        super().__init_subclass__(**keywords)
        if "traits" not in vars(cls):
            cls.traits = replace(cls.traits, title=cls.__name__, citation="", role="baseline")
        if cls.session_learning is SessionLearning.REPLAY and not hasattr(cls, "select"):
            raise UserError(
                f"{cls.__name__} learns by replay, so it must inherit from hagmeta.methods.parts.Replays."
            )

    def __init__(self, settings: MethodSettings, sizes: Sizes, seed: int) -> None:
        super().__init__()
        encoder = seeded(seed, "init/encoder", lambda: self.new_encoder(settings, sizes))
        if encoder is not None:
            self.encoder = encoder.requires_grad_(not self.freezes_encoder)

    @classmethod
    def new_encoder(cls, settings: Any, sizes: Sizes) -> Encoder | None:
        """Return the encoder to pre-train, or None where a configuration needs none."""
        return make_encoder(sizes.features, settings)

    @classmethod
    def traits_of(cls, settings: Any) -> MethodTraits:
        """Return the traits of one configuration, which may differ from those of the class."""
        if cls.traits.cost:
            return cls.traits
        trains, often = cls.training_of(settings) is not MetaTraining.NONE, cls.passes(settings) > 1
        return replace(cls.traits, cost="heavy" if trains and often else "medium" if trains else "light")

    @classmethod
    def all_defaults(cls) -> dict[str, Any]:
        """Return the defaults of this method: its own, and those of its bases that it leaves as they are."""
        found: dict[str, Any] = {"pretrain_on": cls.default_pretrain_on()}
        for base in reversed(cls.__mro__):
            found |= vars(base).get("defaults", {})
        return found

    @classmethod
    def default_pretrain_on(cls) -> str:
        """All known classes, unless its episodes train the encoder on those beyond the base classes."""
        episodic = cls.meta_training in (MetaTraining.INCREMENTAL, MetaTraining.FEW_SHOT)
        return "base" if episodic and not cls.freezes_encoder else "known"

    @classmethod
    def training_of(cls, settings: Any) -> MetaTraining:
        """What a configuration of it learns from before the first session."""
        return cls.meta_training

    @classmethod
    def passes(cls, settings: Any) -> int:
        """How often a step passes over the graph: what it costs, roughly."""
        return 1

    @abstractmethod
    def encode(self, shared: Shared, view: View, key: Tensor | None) -> Any:
        """What a pass over the graph yields, for ``classify`` to use any number of times."""

    @abstractmethod
    def classify(self, shared: Shared, encoded: Any, task: Task) -> Tensor:
        """Logits (queries, classes)."""

    @abstractmethod
    def loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The loss of one step of meta-training, and the logits (queries, classes) behind it."""

    def session_loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The same in a session; its classes are the last of the task."""
        return self.loss(shared, view, task, target, key)

    def keep(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """What is kept of a task's classes, where their labels may not be read again: here their means."""
        embedding = self.encoder(shared.graph, view, None)
        return (mean_prototypes(embedding, shared.class_means, task.averaged, task.support, task.kept),)

    def recall(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """What is to be remembered, while a session's steps are taken, of the model as it was before them."""
        return ()

    def diagnostics(self, shared: Shared, view: View, task: Task) -> dict[str, Tensor]:
        """Numbers to keep of a session, once its queries are answered; NaN where one is not defined."""
        return {}

    def logits(self, shared: Shared, view: View, tasks: tuple[Task, ...]) -> tuple[Tensor, ...]:
        """Logits of each task after one pass over the graph, in evaluation mode."""
        encoded = self.encode(shared, view, None)
        return tuple(self.classify(shared, encoded, task) for task in tasks)

    def embeddings(self, shared: Shared, view: View, nodes: Tensor) -> Tensor:
        """Embeddings (nodes, width) of some nodes, in evaluation mode."""
        return self.encoder(shared.graph, view, None).at(nodes)

    def forward(self, step: Step, *arguments: Any) -> Any:
        """Run a step, given by its name or as a function of the method.

        ``torch.func.functional_call`` reaches every step through here.
        """
        return step(self, *arguments) if callable(step) else getattr(self, step)(*arguments)
