"""Small base classes for features that only some methods need.

A phase calls the extra steps of a base class for every method that inherits from it.
"""

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
    """A method that keeps nodes of every class seen so far and learns them again in later sessions."""

    session_learning = SessionLearning.REPLAY

    @abstractmethod
    def describe(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, Tensor]:
        """Return embeddings (nodes, width) and logits (nodes, classes) of every node, for `select`."""

    @classmethod
    @abstractmethod
    def select(
        cls, settings: Any, embeddings: list[np.ndarray], logits: list[np.ndarray], size: int
    ) -> list[np.ndarray]:
        """Return, for each class that was just learnt, the positions of at most `size` nodes to keep.

        `embeddings` (nodes, width) and `logits` (nodes, classes seen so far) have one array per class, with a
        row per candidate.
        """


class Grows(Method):
    """A method with parameters for each class."""

    @abstractmethod
    def meet(self, shared: Shared, new: int, view: View, task: Task) -> Parameters:
        """Return the parameters that change when the last `new` classes of `task` arrive."""


class Consolidates(Method):
    """A method with parameters that summarise the classes learnt so far, for later sessions."""

    @abstractmethod
    def task_loss(self, shared: Shared, view: View, task: Task, target: Tensor) -> Tensor:
        """Return the loss on what was learnt in a session, in evaluation mode.

        The queries of `task` are the supports of the session. In session 0 they are the labelled nodes of all
        known classes. Padding has a negative `target`.
        """

    @abstractmethod
    def consolidate(self, slopes: Parameters) -> Parameters:
        """Return the parameters that change after a session, given the gradients of `task_loss`."""


class CachesFeatures(Method):
    """A method whose features no step changes, so that they are computed once per view."""

    @abstractmethod
    def propagate(self, graph: Graph, view: View) -> Tensor:
        """Return the features that no step changes, a row per node. Steps find them in `view.propagated`."""


class Chooses(Method):
    """A method that chooses some of its parameters at session 0, from the labels of the known classes."""

    @abstractmethod
    def choose(self, shared: Shared, view: View, task: Task) -> Parameters:
        """Return the parameters that are chosen. Under `released` none are."""


class Settles(Method):
    """A method with statistics that no step of a session changes. They are computed once per session."""

    @abstractmethod
    def settle(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """Return the statistics that no step of a session changes. Steps find them in `view.settled`."""


class JudgesFamiliarity(Method):
    """A method whose logits do not tell whether a node belongs to none of the classes."""

    @abstractmethod
    def familiarity(self, shared: Shared, view: View, task: Task) -> Tensor:
        """Return how well each query fits each class (queries, classes), in evaluation mode.

        If all values of a node are low, it may belong to none of the classes. By default, logits tell this.
        """


class Begins(Method):
    """A method that changes its parameters before it learns the labels of a session."""

    @abstractmethod
    def begin(self, shared: Shared, view: View, task: Task) -> Parameters:
        """Return the parameters that change before a session is learnt. Under `released` none change."""


class Finishes(Method):
    """A method that changes its parameters once more after the gradient steps of a session."""

    @abstractmethod
    def finish(self, shared: Shared, view: View, task: Task) -> Parameters:
        """Return the parameters that change after the steps of a session. Under `released` none change."""


class OnNarrowInputs(Method):
    """A method that propagates the reduced inputs (`View.narrow`) without a learnt layer."""

    @classmethod
    @abstractmethod
    def narrow_columns(cls, settings: Any, columns: int) -> int:
        """Return how many columns the method makes of `columns` reduced inputs; 0 if it needs none."""

    @classmethod
    def refits_words(cls, settings: Any) -> bool:
        """Return whether tf-idf is computed again in each session, from the nodes that are visible then."""
        return False


class HasPrototypes(Method):
    """A method that predicts the nearest prototype.

    Under `released`, new classes can have two prototypes (`double_prototypes`).
    """

    defaults: ClassVar[Mapping[str, Any]] = {"double_prototypes": True}

    @abstractmethod
    def prototypes(self, shared: Shared, view: View, task: Task) -> Tensor:
        """Return the prototypes (classes, width) of the classes of `task`."""

    def keep(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        return (self.prototypes(shared, view, task),)


class OwnSteps(NamedTuple):
    """Adam settings for some of the parameters. None means the common value."""

    rate: float | None  # in meta-training; in sessions it keeps the same ratio to the common rate
    weight_decay: float | None


class HasOwnSteps(Method):
    """A method that trains some parameters differently. Both hooks select parameters by name prefix."""

    @classmethod
    def own_steps(cls, settings: Any) -> dict[str, OwnSteps]:
        """Return learning rate and weight decay by name prefix, for parameters that differ."""
        return {}

    @classmethod
    def sums_gradients(cls, settings: Any) -> tuple[str, ...]:
        """Return the name prefixes of parameters whose gradients accumulate over steps."""
        return ()


class KnowsTrueMeans(Method):
    """A method that can get the means over all train nodes of every class, which makes it an oracle."""

    @classmethod
    @abstractmethod
    def knows_true_means(cls, settings: Any) -> bool:
        """Return whether `Shared.class_means` has the true means in a configuration."""


class RereadsMany(Method):
    """A method that computes its statistics again only if enough earlier labels may be read.

    With fewer labels it keeps the statistics. `Task.exemplars` are the nodes whose labels may be read.
    """

    rereads_from: ClassVar[int]  # labels per class
