"""The interface of a method. A method is written for one seed; a pack runs it for several at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from inspect import getattr_static, signature
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hagmeta.common.errors import UserError
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.encoders.base import Encoder
from hagmeta.layers.encoders.registry import ENCODERS, EncoderSettings, make_encoder
from hagmeta.layers.losses import balanced_cross_entropy
from hagmeta.layers.prototypes import mean_prototypes
from hagmeta.packs.pack import Parameters, Step
from hagmeta.packs.randomness import seeded
from hagmeta.packs.values import hold
from hagmeta.sparse.graph import ClassMeans, Graph, View

# Settings of all methods that may differ within a pack. A method declares them in `differs`.
COMMON: tuple[str, ...] = (
    "learning_rate",
    "weight_decay",
    "finetune_rate",
    "dropout",
    "smoothing",
    "logit_adjustment",
)


@dataclass(frozen=True, kw_only=True)
class MethodSettings(EncoderSettings):
    """The settings that every method gets. A method declares its own settings in a subclass."""

    method: str = setting("hag-meta", "method to run", scope="method")

    if TYPE_CHECKING:

        @property
        def rehearsed(self) -> int | None:
            """The maximum number of labels per class that may be used again. The scenarios declare it."""

    @classmethod
    def unused_by(cls, method: Any) -> str:
        """Return why `method` does not use this group, or an empty string if it does.

        All methods use `MethodSettings`. A subclass is used by the methods that name it in `own_settings`,
        but not by built-in methods that inherit from these.
        """
        own = vars(method).get("own_settings")
        used = cls is MethodSettings or (own is not None and issubclass(own, cls))
        return "" if used else "it is a setting of other methods only"


class Task(NamedTuple):
    """The classes seen so far, in order of arrival, and nodes to classify among them.

    Classes with only a stored prototype come first. Then come classes known by the average over many labelled
    nodes, then classes known by K supports.
    """

    classes: Tensor  # (classes,) class numbers in the dataset
    averaged: Tensor  # (classes known by averages,) their rows in Shared.class_means
    support: Tensor  # (classes known by supports, shots) nodes
    query: Tensor  # (queries,) nodes
    before_steps: tuple[Tensor, ...] = ()  # the result of this hook
    class_statistics: tuple[Tensor, ...] = ()  # the result of this hook, for classes whose labels are gone
    exemplars: tuple[Tensor, ...] = ()  # (classes, M) nodes of these classes that keep their labels; -1 pads

    def on(self, device: torch.device) -> Task:
        """Return a copy on `device`."""
        classes, averaged, support, query = (part.to(device) for part in self[:4])
        exemplars = tuple(nodes.to(device) for nodes in self.exemplars)
        return Task(classes, averaged, support, query, self.before_steps, self.class_statistics, exemplars)


@dataclass(frozen=True)
class Shared:
    """The arguments of a step that all seeds of a pack share. All other arguments have a row per seed."""

    graph: Graph
    class_means: ClassMeans  # a row per class: the average over the nodes by which it is known
    task_sizes: tuple[int, ...]  # number of classes in each task, in order of arrival; the base task first


class Sizes(NamedTuple):
    """The sizes that a method needs to create its parameters."""

    features: int  # inputs of the first layer; see the setting `inputs`
    base_classes: int
    n_way: int
    classes: int  # in the whole dataset
    narrow: int = 0  # columns of the reduced inputs, for methods that propagate inputs directly
    nodes: int = 0  # in the whole dataset


class MetaTraining(Enum):
    """What a method learns from between pre-training and the first session."""

    NONE = "nothing"
    INCREMENTAL = "pseudo-incremental episodes of base and novel-train classes (GPIL)"
    FEW_SHOT = "N-way K-shot episodes of novel-train classes"
    SUPERVISED = "labelled nodes of all base and novel-train classes at once"


class SessionLearning(Enum):
    """What the gradient steps of a session learn from, if the protocol lets the method choose."""

    NONE = "no gradient steps"
    HELD_OUT = "one held-out support per class, predicted from the others, and train nodes of known classes"
    SUPPORTS = "the new supports"
    REPLAY = "the new supports, and nodes kept from earlier classes"
    PSEUDO_LABELS = "all readable labels, and the method's own predictions for unlabelled nodes"


class OwnSteps(NamedTuple):
    """Adam settings for some of the parameters. None means the common value."""

    rate: float | None  # in meta-training; in sessions it keeps the same ratio to the common rate
    weight_decay: float | None


class Method(nn.Module, ABC):
    """Base class of all methods. A method is written for one seed.

    Subclasses implement `classify`, and often `encode` and `loss`. All other functions are optional. A hook
    is named after the moment at which it is called, or after the values that it returns. Hooks whose default
    does nothing are only called if a method defines them.

    In all steps, `key` is the random key for dropout; ``None`` means evaluation mode.
    """

    own_settings: ClassVar[type[MethodSettings] | None] = None
    decides: ClassVar[Mapping[str, Any]] = {}  # settings that the method fixes; the user cannot change them
    # Defaults of settings that have no common default. A subclass adds to the defaults of its bases.
    defaults: ClassVar[Mapping[str, Any]] = {
        "hidden": 32,
        "embedding": 16,
        "inputs": "raw",
        "classifier": "linear",
    }
    # Settings that may differ within a pack. Steps read those of the method as attributes,
    # such as `self.tukey`. The list is not inherited: a subclass may read a setting in another way.
    differs: ClassVar[tuple[str, ...]] = ()
    traits: ClassVar[MethodTraits] = MethodTraits(title="Method")
    meta_training: ClassVar[MetaTraining] = MetaTraining.INCREMENTAL
    session_learning: ClassVar[SessionLearning] = SessionLearning.HELD_OUT
    freezes_encoder: ClassVar[bool] = False  # the encoder does not learn and has no dropout
    packs: ClassVar[bool] = True  # whether seeds can run together under `torch.func.vmap`
    # With `faithful`, new classes have a second prototype; predicting it counts as an error.
    second_prototypes: ClassVar[bool] = False
    # If fewer earlier labels per class may be read, a method keeps its statistics instead of computing them
    # again. `Task.exemplars` are then the nodes whose labels may be read.
    rereads_from: ClassVar[int] = 0
    encoder: Encoder  # exists only if `new_encoder` returns one

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Check the hooks of a class, and give it a title if it has no `traits`.

        It inherits all other traits, such as the revision.
        """
        super().__init_subclass__(**keywords)
        if "traits" not in vars(cls):
            cls.traits = replace(cls.traits, title=cls.__name__, citation="", role="baseline")
        for hook in [name for name in vars(cls) if name in HOOKS]:
            given, expected = _parameters(vars(cls)[hook]), HOOKS[hook]
            if given != expected:
                raise UserError(
                    f"{cls.__name__}.{hook} has the parameters ({', '.join(given)}); expected "
                    f"({', '.join(expected)}), as in Method.{hook}. Rename it if it is no such hook."
                )
        if cls.session_learning is SessionLearning.NONE and cls.has("after_session"):
            raise UserError(
                f"{cls.__name__}.after_session would never be called, because it takes no gradient steps in "
                "sessions. Use before_session or session_statistics."
            )
        missing = [hook for hook in ("describe", "exemplars") if not cls.has(hook)]
        if missing and cls.session_learning is SessionLearning.REPLAY:
            raise UserError(f"{cls.__name__} learns by replay, so it must define {' and '.join(missing)}.")

    @classmethod
    def has(cls, hook: str) -> bool:
        """Return whether a method defines a hook. An unneeded hook would cost a pass over the graph."""
        return getattr_static(cls, hook) is not vars(Method)[hook]

    def __init__(self, settings: MethodSettings, sizes: Sizes, seed: int) -> None:
        super().__init__()
        declared = {name for base in type(self).__mro__ for name in vars(base).get("differs", ())}
        own = {name: getattr(settings, name) for name in sorted(declared.difference(COMMON))}
        hold(
            self, {name: value for name, value in own.items() if isinstance(value, (int, float))}
        )  # no words
        encoder = seeded(seed, "init/encoder", lambda: self.new_encoder(settings, sizes))
        if encoder is not None:
            self.encoder = encoder.requires_grad_(not self.freezes_encoder)

    @classmethod
    def new_encoder(cls, settings: Any, sizes: Sizes) -> Encoder | None:
        """Return the encoder to pre-train, or None if the configuration needs none."""
        return make_encoder(sizes.features, settings)

    @classmethod
    def traits_of(cls, settings: Any) -> MethodTraits:
        """Return the traits of one configuration. They may differ from those of the class."""
        if cls.traits.cost:
            return cls.traits
        trains, often = cls.training_of(settings) is not MetaTraining.NONE, cls.passes(settings) > 1
        return replace(cls.traits, cost="heavy" if trains and often else "medium" if trains else "light")

    @classmethod
    def all_defaults(cls) -> dict[str, Any]:
        """Return the defaults of this method, including those inherited from its bases."""
        found: dict[str, Any] = {"pretrain_on": cls.default_pretrain_on()}
        for base in reversed(cls.__mro__):
            found |= vars(base).get("defaults", {})
        return found

    @classmethod
    def default_pretrain_on(cls) -> str:
        """Return the default of `pretrain_on`.

        It is "known", unless episodes train the encoder on the novel-train classes; then it is "base".
        """
        episodic = cls.meta_training in (MetaTraining.INCREMENTAL, MetaTraining.FEW_SHOT)
        return "base" if episodic and not cls.freezes_encoder else "known"

    @classmethod
    def training_of(cls, settings: Any) -> MetaTraining:
        """Return what a configuration learns from before the first session."""
        return cls.meta_training

    @classmethod
    def remarks(cls, settings: Any) -> list[str]:
        """Return what a user should know about a configuration of this method before it runs."""
        return []

    @classmethod
    def passes(cls, settings: Any) -> int:
        """Return how many passes over the graph a training step takes, as a rough measure of its cost."""
        return 1

    @classmethod
    def propagations(cls, settings: Any) -> set[str]:
        """Return how the first layers of a configuration propagate the inputs (`Encoder.propagates`)."""
        return {ENCODERS[settings.encoder].propagates} - {""}

    @classmethod
    def own_steps(cls, settings: Any) -> dict[str, OwnSteps]:
        """Return learning rate and weight decay by prefix of parameter names, for parameters that differ."""
        return {}

    @classmethod
    def sums_gradients(cls, settings: Any) -> tuple[str, ...]:
        """Return the name prefixes of parameters whose gradients accumulate over steps."""
        return ()

    @classmethod
    def narrow_columns(cls, settings: Any, columns: int) -> int:
        """Return how many columns the method makes of `columns` reduced inputs (`View.narrow`), or 0."""
        return 0

    @classmethod
    def refits_words(cls, settings: Any) -> bool:
        """Return whether tf-idf is computed again in each session, from the nodes that are visible then."""
        return False

    @classmethod
    def knows_true_means(cls, settings: Any) -> bool:
        """Return whether `Shared.class_means` has the means over all train nodes of every class.

        This makes a configuration an oracle.
        """
        return False

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> Any:
        """Run one pass over the graph and return its result. `classify` may use it several times.

        By default, this is the embedding that the encoder computes.
        """
        return self.encoder(shared.graph, view, key)

    @abstractmethod
    def classify(self, shared: Shared, encoded: Any, task: Task) -> Tensor:
        """Return logits (queries, classes) of the queries of `task`."""

    def loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of one meta-training step, and its logits (queries, classes).

        By default, this is the cross-entropy.
        """
        logits = self.classify(shared, self.encode(shared, view, key), task)
        return F.cross_entropy(logits, target), logits

    def session_loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the loss and logits of one step in a session. The session's classes come last in `task`."""
        return self.loss(shared, view, task, target, key)

    # Hooks that change parameters. They return the new values of those that change.

    def after_training(self, shared: Shared, view: View, task: Task) -> Parameters:
        """Choose parameters at session 0, from the labels of the known classes. Not under `released`."""
        return {}

    def add_classes(self, shared: Shared, new: int, view: View, task: Task) -> Parameters:
        """Initialise the parameters of the last `new` classes of `task`, which arrive now."""
        return {}

    def before_session(self, shared: Shared, view: View, task: Task) -> Parameters:
        """Change parameters before a session is learnt. Not under `released`."""
        return {}

    def after_session(self, shared: Shared, view: View, task: Task) -> Parameters:
        """Change parameters after the gradient steps of a session. Not under `released`.

        It is not called if the session takes no steps, because no label is left to predict. With
        `self_training`, it is called after both rounds of steps.
        """
        return {}

    def consolidate(self, gradients: Parameters) -> Parameters:
        """Summarise what was learnt in a session for later ones, given gradients of `consolidation_loss`."""
        return {}

    def consolidation_loss(self, shared: Shared, view: View, task: Task, target: Tensor) -> Tensor:
        """Return the loss on what was learnt in a session, in evaluation mode.

        The queries of `task` are the supports of the session. In session 0 they are the labelled nodes of all
        known classes. Padding has a negative `target`. By default, all classes have equal weight.
        """
        (logits,) = self.logits(shared, view, (task,))
        return balanced_cross_entropy(logits, target)

    # Hooks that return values for later steps, which find them in the field of the same name.

    def fixed_features(self, graph: Graph, view: View) -> Tensor:
        """Return the features that no step changes, a row per node, for `View.fixed_features`."""
        raise NotImplementedError

    def session_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """Return the statistics that no step of a session changes, for `View.session_statistics`."""
        return ()

    def class_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """Return what to store of the classes of `task` if their labels may not be read again.

        Later tasks have it as `Task.class_statistics`. By default these are the class means.
        """
        embedding, kept = self.encoder(shared.graph, view, None), task.class_statistics
        return (mean_prototypes(embedding, shared.class_means, task.averaged, task.support, kept),)

    def before_steps(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """Return what the coming steps need of the current model, for `Task.before_steps`."""
        return ()

    # Hooks of methods with `SessionLearning.REPLAY`.

    def describe(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, Tensor]:
        """Return embeddings (nodes, width) and logits (nodes, classes) of every node, for `exemplars`."""
        raise NotImplementedError

    @classmethod
    def exemplars(
        cls, settings: Any, embeddings: list[np.ndarray], logits: list[np.ndarray], size: int
    ) -> list[np.ndarray]:
        """Return, for each class that was just learnt, the positions of at most `size` nodes to keep.

        `embeddings` (nodes, width) and `logits` (nodes, classes seen so far) have one array per class, with a
        row per candidate.
        """
        raise NotImplementedError

    # What a method answers.

    def diagnostics(self, shared: Shared, view: View, task: Task) -> dict[str, Tensor]:
        """Return numbers to record after a session; NaN if one is undefined."""
        return {}

    def logits(self, shared: Shared, view: View, tasks: tuple[Task, ...]) -> tuple[Tensor, ...]:
        """Return the logits of each task after one pass over the graph, in evaluation mode."""
        encoded = self.encode(shared, view, None)
        return tuple(self.classify(shared, encoded, task) for task in tasks)

    def open_set_logits(self, shared: Shared, view: View, task: Task) -> Tensor:
        """Return how well each query fits each class (queries, classes), in evaluation mode.

        If all values of a node are low, it may belong to none of the classes. By default, logits tell this.
        """
        (logits,) = self.logits(shared, view, (task,))
        return logits

    def embeddings(self, shared: Shared, view: View, nodes: Tensor) -> Tensor:
        """Return embeddings (nodes, width) of `nodes`, in evaluation mode."""
        return self.encoder(shared.graph, view, None).at(nodes)

    def forward(self, step: Step, *arguments: Any) -> Any:
        """Run a step, given as a name or as a function of the method.

        `torch.func.functional_call` can only call `forward`, so all steps go through it.
        """
        return step(self, *arguments) if callable(step) else getattr(self, step)(*arguments)


def _parameters(function: Any) -> list[str]:
    """Return the names of the parameters of a function or class method, including the first."""
    return list(signature(getattr(function, "__func__", function)).parameters)


# The parameters of all optional functions of a method, by name.
HOOKS = {
    name: _parameters(member)
    for name, member in vars(Method).items()
    if isinstance(member, (FunctionType, classmethod))
    and name not in ("encode", "classify", "loss")
    and not name.startswith("_")
}
