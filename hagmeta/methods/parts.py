"""Small base classes for what some methods need. Phases run the steps of those that a method derives from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor

from hagmeta.methods.base import Method, SessionLearning, Shared, Task
from hagmeta.packs.pack import Parameters
from hagmeta.sparse.graph import Graph, View


class Replays(Method):
    """Keeps nodes of every class it has met, and learns them again in later sessions."""

    session_learning = SessionLearning.REPLAY

    @abstractmethod
    def describe(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, Tensor]:
        """Return embeddings (nodes, width) and logits (nodes, classes) of every node, to choose by."""

    @classmethod
    @abstractmethod
    def select(
        cls, settings: Any, embeddings: list[np.ndarray], logits: list[np.ndarray], size: int
    ) -> list[np.ndarray]:
        """Return positions of the at most ``size`` nodes to keep of each class that was just learnt.

        For every class, ``embeddings`` (nodes, width) and ``logits`` (nodes, classes met) are those of the
        nodes to choose from.
        """


class Grows(Method):
    """Has parameters for each class."""

    @abstractmethod
    def meet(self, shared: Shared, new: int, view: View, task: Task) -> Parameters:
        """Return the parameters that change when the last ``new`` classes of a task are met first."""


class CachesFeatures(Method):
    """Has features that no step changes: they are made once for every view."""

    @abstractmethod
    def propagate(self, graph: Graph, view: View) -> Tensor:
        """Return what no step changes, a row for every node. It is in ``view.propagated`` then."""


class Settles(Method):
    """Has statistics that no step of a session changes: they are made once for every session."""

    @abstractmethod
    def settle(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """Return what no step of a session changes. It is in ``view.settled`` then."""


class OnNarrowInputs(Method):
    """Propagates inputs of few columns as they are (``View.narrow``)."""

    @classmethod
    @abstractmethod
    def narrow_columns(cls, settings: Any, columns: int) -> int:
        """Return how many columns it makes of ``columns`` narrow inputs; 0: it needs none."""

    @classmethod
    def refits_words(cls, settings: Any) -> bool:
        """Return whether narrow inputs are the tf-idf of what is visible in the session, not at first."""
        return False


class HasPrototypes(Method):
    """Answers by the nearest prototype. Under ``released`` new classes can have two: `double_prototypes`."""

    defaults: ClassVar[Mapping[str, Any]] = {"double_prototypes": True}

    @abstractmethod
    def prototypes(self, shared: Shared, view: View, task: Task) -> Tensor:
        """Return the prototypes (classes, width) of a task's classes."""

    def keep(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        return (self.prototypes(shared, view, task),)


class OwnSteps(NamedTuple):
    """Adam's settings for some parameters, where they are not the common ones (None: the common one)."""

    rate: float | None  # in meta-training; in sessions as much larger or smaller than the common one
    weight_decay: float | None


class HasOwnSteps(Method):
    """Learns some parameters in another way than the rest. Both hooks go by how parameter names begin."""

    @classmethod
    def own_steps(cls, settings: Any) -> dict[str, OwnSteps]:
        """Return rate and weight decay of parameters that have their own."""
        return {}

    @classmethod
    def sums_gradients(cls, settings: Any) -> tuple[str, ...]:
        """Return which parameters have gradients that add up from step to step."""
        return ()


class KnowsTrueMeans(Method):
    """Can be given the means over all train nodes of every class met: it is an oracle then."""

    @classmethod
    @abstractmethod
    def knows_true_means(cls, settings: Any) -> bool:
        """Return whether ``Shared.class_means`` has the true means in a configuration."""


class RereadsMany(Method):
    """Reads earlier labels again only where there are enough; otherwise it keeps what it computed of them."""

    rereads_from: ClassVar[int]  # labels per class
