"""Nearest class means over an encoder with random weights: a control for what pre-training adds."""

from __future__ import annotations

from typing import ClassVar

from hagmeta.common.traits import MethodTraits
from hagmeta.methods.bounds import Frozen


class RandomEncoder(Frozen):
    """`frozen` with the random initial weights of its encoder. No weight is ever trained.

    The weights are those with which pre-training begins for the same seed.
    """

    decides: ClassVar = {
        **Frozen.decides,
        "pretrain_epochs": 0,
        # Without training, these change nothing.
        **{"pretrain_patience": 10, "pretrain_on": "known", "classifier": "linear", "dropout": 0.5},
        **{"learning_rate": 0.005, "weight_decay": 0.0005},
    }
    differs: ClassVar = ("smoothing", "logit_adjustment")
    traits: ClassVar = MethodTraits(
        title="Random encoder",
        citation="Control of this study: nearest class means over an encoder with random weights.",
    )
