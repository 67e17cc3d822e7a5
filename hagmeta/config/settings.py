"""The settings of pre-training, meta-training and sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hagmeta.common.settings.domains import (
    HIGHEST_RATE,
    HIGHEST_WEIGHT,
    MOST_NODES,
    MOST_STEPS,
    Choice,
    Number,
    Whole,
)
from hagmeta.common.settings.setting import BY_METHOD, Settings, bases_with, setting
from hagmeta.methods import METHODS, MetaTraining, MethodSettings, SessionLearning
from hagmeta.scenarios import ProtocolSettings


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """Settings of the optimizer. `weight_decay` also applies in sessions."""

    learning_rate: float = setting(
        0.005,
        "Adam learning rate in pre-training and meta-training",
        Number(at_most=HIGHEST_RATE, above=0),
        scope="method",
    )
    weight_decay: float = setting(
        0.0005,
        "Adam weight decay",
        Number(at_least=0, at_most=HIGHEST_RATE),
        scope="method",
    )


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(TrainingSettings):
    """Settings of pre-training."""

    pretrain_epochs: int = setting(
        2000,
        "maximum number of pre-training epochs",
        Whole(at_least=0, at_most=MOST_STEPS),
        scope="method",
    )
    pretrain_patience: int = setting(
        10,
        "stop pre-training after this many evaluations without improvement",
        Whole(at_least=1, at_most=MOST_STEPS),
        scope="method",
    )
    classifier: str = setting(
        BY_METHOD,
        "pre-training head: linear, or cosine with label smoothing and class-balanced loss",
        Choice(("linear", "cosine")),
        scope="method",
    )


@dataclass(frozen=True, kw_only=True)
class MetaTrainingSettings(TrainingSettings):
    """Settings of meta-training."""

    episodes: int = setting(
        1000,
        "maximum number of meta-training episodes",
        Whole(at_least=1, at_most=MOST_STEPS),
        scope="method",
    )
    validate_every: int = setting(
        25,
        "episodes between two validations",
        Whole(at_least=1, at_most=MOST_STEPS),
        scope="method",
    )
    patience: int = setting(
        10,
        "stop meta-training after this many validations without improvement",
        Whole(at_least=1, at_most=MOST_STEPS),
        scope="method",
    )

    @classmethod
    def unused_by(cls, method: Any) -> str:
        return "the method is not meta-trained" if method.meta_training is MetaTraining.NONE else ""


@dataclass(frozen=True, kw_only=True)
class SessionSettings(Settings):
    """Settings of the gradient steps in a session."""

    finetune_steps: int = setting(
        20,
        "gradient steps per session, not under released",
        Whole(at_least=0, at_most=MOST_STEPS),
        scope="method",
    )
    finetune_rate: float = setting(
        0.005,
        "Adam learning rate in the sessions",
        Number(at_most=HIGHEST_RATE, above=0),
        scope="method",
    )

    @classmethod
    def unused_by(cls, method: Any) -> str:
        none = method.session_learning is SessionLearning.NONE
        return "the method takes no gradient steps in sessions" if none else ""


@dataclass(frozen=True, kw_only=True)
class SelfTrainingSettings(Settings):
    """Settings of self-training (Li, Han and Wu, AAAI 2018)."""

    self_training: int = setting(
        0,
        "add this many visible unlabelled nodes to the supports of each class, by the method's most confident"
        " predictions, then learn and predict again (0: off)",
        Whole(at_least=0, at_most=MOST_NODES),
        scope="method",
    )

    @classmethod
    def unused_by(cls, method: Any) -> str:
        if method.traits.oracle:
            return "the method knows all labels"
        by_more = method.session_learning in (SessionLearning.REPLAY, SessionLearning.PSEUDO_LABELS)
        return "" if not by_more else "the method does not learn from supports alone"


@dataclass(frozen=True, kw_only=True)
class MemorySettings(Settings):
    """Settings of the replay memory."""

    memory: int = setting(
        10,
        "nodes kept per class for replay",
        Whole(at_least=1, at_most=10_000),
        scope="method",
    )

    @classmethod
    def unused_by(cls, method: Any) -> str:
        replays = method.session_learning is SessionLearning.REPLAY
        return "" if replays else "the method does not use replay"


@dataclass(frozen=True, kw_only=True)
class ReadOutSettings(Settings):
    """Settings that turn the logits of a method into scores."""

    smoothing: float = setting(
        0.0,
        "spread scores over the visible graph; neighbours get this weight in every round (0: off)",
        Number(at_least=0, at_most=1),
        scope="method",
        branches=(0,),
        revision=2,
    )
    spread: str = setting(
        "smoothing",
        "how scores spread with smoothing above 0: labelled nodes keep their labels in five rounds"
        " (smoothing), or errors at labelled nodes spread first (correct-and-smooth)",
        Choice(("smoothing", "correct-and-smooth")),
        scope="method",
    )
    logit_adjustment: float = setting(
        0.0,
        "subtract TAU x log(class share of the labels) from the logits, with this TAU (0: off)",
        Number(at_least=0, at_most=HIGHEST_WEIGHT),
        scope="method",
        branches=(0,),
    )
    prior: str = setting(
        "equal",
        "class shares that predictions assume: equal, or estimated from visible unlabelled nodes by EM",
        Choice(("equal", "estimated")),
        scope="method",
    )

    def without_effect(self) -> Mapping[str, str]:
        return {} if self.smoothing else {"spread": "smoothing"}


@dataclass(frozen=True, kw_only=True)
class PhaseSettings(
    ReadOutSettings,
    MemorySettings,
    SelfTrainingSettings,
    SessionSettings,
    MetaTrainingSettings,
    PretrainSettings,
    MethodSettings,
    ProtocolSettings,
):
    """All settings that the phases use."""

    @property
    def rehearsed(self) -> int | None:
        return 0 if self.exemplars else super().rehearsed

    @property
    def exemplars(self) -> int:
        most = super().rehearsed
        return most if most and most < METHODS[self.method].rereads_from else 0

    @cached_property
    def idle(self) -> dict[str, str]:
        """Settings that currently have no effect, each with the setting that causes this."""
        kind: Any = type(self)
        method, found = METHODS[self.method], dict[str, str]()
        for group in bases_with(kind, "without_effect"):
            if not group.unused_by(method):
                found = vars(group)["without_effect"](self) | found  # a method's settings come first
        return found
