"""Distillation: keep the predictions of the model as it was before a session."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from hagmeta.common.settings.domains import HIGHEST_WEIGHT, Number
from hagmeta.common.settings.setting import setting
from hagmeta.methods.base import MethodSettings
from hagmeta.packs.values import like


@dataclass(frozen=True, kw_only=True)
class DistillationSettings(MethodSettings):
    """Settings of methods that distil."""

    distillation: float = setting(
        1.0,
        "weight of the distillation loss",
        Number(at_least=0, at_most=HIGHEST_WEIGHT),
        scope="method",
    )
    temperature: float = setting(
        2.0,
        "temperature of the distillation",
        Number(at_most=HIGHEST_WEIGHT, above=0),
        scope="method",
    )


def divergence(logits: Tensor, before: Tensor, temperature: float | Tensor) -> Tensor:
    """Return the divergence (nodes,) of the softmax of `logits` (nodes, classes) from that of `before`.

    Both are divided by `temperature`. This is their cross-entropy up to a constant.
    """
    now, then = (values.div(temperature).log_softmax(-1) for values in (logits, before))
    return (then.exp() * (then - now)).sum(-1)


def distillation_loss(logits: Tensor, before: Tensor, temperature: float | Tensor) -> Tensor:
    """Return how far `logits` (nodes, classes) moved from those `before`, both softened by `temperature`."""
    return like(temperature**2, logits) * divergence(logits, before, temperature).mean()
