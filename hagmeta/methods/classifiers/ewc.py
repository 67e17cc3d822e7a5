"""EWC (Kirkpatrick et al., PNAS 2017): elastic weight consolidation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from hagmeta.common.settings.domains import HIGHEST_WEIGHT, Number
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import COMMON, MethodSettings, Shared, Sizes, Task
from hagmeta.methods.classifiers.base import GrowingClassifier, loss_among_new
from hagmeta.packs.pack import Parameters
from hagmeta.packs.values import like
from hagmeta.sparse.graph import View


@dataclass(frozen=True, kw_only=True)
class EwcSettings(MethodSettings):
    """Settings of EWC."""

    consolidation: float = setting(
        100_000.0,
        "weight of the penalty on changes of important parameters",
        Number(at_least=0, at_most=HIGHEST_WEIGHT),
        scope="method",
    )


class Ewc(GrowingClassifier):
    """A growing linear classifier. Sessions learn the new supports and change important parameters little.

    After each task, a parameter gets an importance F. Later tasks add ``F (p - p_t)^2`` to the loss, where
    ``p_t`` is the parameter at the end of that task. We made these choices to adapt EWC:

    - The base and novel-train classes are the first task, learnt from all their train nodes. Each session is
      another task, with K supports per class.
    - One classifier predicts among all classes seen so far. The new supports are learnt among the classes of
      their session only. CGLB learns them among all classes, which forgot more on held-out classes of Debian.
      If N is 1, they are learnt among all classes, because a single class has no loss.
    - A new row starts in the direction of the mean of its supports, with the mean length of the other rows.
      The penalty applies to it from the next session on.
    - F is the squared gradient of the mean loss of a task, and the penalty has no factor 1/2. This is the
      form of the graph benchmark CGLB. The paper averages the squared gradients of single examples.
    - That loss compares all classes seen so far, which count equally. It is computed without dropout; CGLB
      uses dropout.
    - CGLB searches weights up to 10,000. The default is larger, because it forgot less on held-out classes.
    - The terms of all tasks are added. Their sum is one quadratic function, so the memory does not grow.

    Labels: F is computed at the end of a task from its own labels. Later sessions read no earlier labels,
    whatever `rehearsal` allows. Pseudo-labels of `self_training` do not count in F.

    Under `released`, the step of a session learns the labelled queries of its own classes. F is computed from
    all nodes of the known classes, and from the supports of later classes.
    """

    own_settings = EwcSettings
    differs: ClassVar = (*COMMON, "consolidation")
    traits: ClassVar = MethodTraits(
        title="EWC",
        citation="James Kirkpatrick, Razvan Pascanu, Neil Rabinowitz, Joel Veness, Guillaume Desjardins,"
        " Andrei A. Rusu, Kieran Milan, John Quan, Tiago Ramalho, Agnieszka Grabska-Barwinska, Demis"
        " Hassabis, Claudia Clopath, Dharshan Kumaran and Raia Hadsell. Overcoming Catastrophic Forgetting"
        " in Neural Networks. PNAS 2017.",
    )

    consolidation: Tensor
    importance: nn.ParameterDict  # the sum of F over tasks
    anchor: nn.ParameterDict  # the parameters at the end of each task, averaged with weights F

    def __init__(self, settings: EwcSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        learning: Parameters = dict(self.named_parameters())
        self.importance, self.anchor = _zeros(learning), _zeros(learning)

    def session_loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits = self.classify(shared, self.encode(shared, view, key), task)
        loss = loss_among_new(logits, target, shared.task_sizes[-1])
        change = penalty(self._learning(), self.importance, self.anchor)
        return loss + like(self.consolidation, change) * change, logits

    def consolidate(self, gradients: Parameters) -> Parameters:
        """Return importance and anchors with the terms of the task that was just learnt."""
        found: Parameters = {}
        for name, value in self._learning().items():
            key = _key(name)
            terms = self.importance[key], self.anchor[key], gradients[name].square(), value
            found[f"importance.{key}"], found[f"anchor.{key}"] = with_task(*terms)
        return found

    def _learning(self) -> Parameters:
        """Return the parameters that steps change."""
        return {name: value for name, value in self.named_parameters() if _key(name) in self.importance}


def _key(name: str) -> str:
    """Return `name` without dots, which the name of a parameter cannot have."""
    return name.replace(".", "-")


def _zeros(parameters: Parameters) -> nn.ParameterDict:
    zeros = {_key(name): torch.zeros_like(value) for name, value in parameters.items()}
    return nn.ParameterDict(zeros).requires_grad_(False)


def penalty(
    parameters: Parameters, importance: Parameters | nn.ParameterDict, anchor: Parameters | nn.ParameterDict
) -> Tensor:
    """Return the sum of importance times squared distance to the anchor, over all parameters."""
    terms = [
        (importance[_key(name)] * (value - anchor[_key(name)]).square()).sum()
        for name, value in parameters.items()
    ]
    return torch.stack(terms).sum()


def with_task(importance: Tensor, anchor: Tensor, fisher: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Return importance and anchor after another task, which ended at `value`.

    The sum of ``F_t (p - p_t)^2`` over tasks is ``F (p - a)^2`` plus a constant. Here ``F`` is the sum of the
    ``F_t``, and ``a`` is the mean of the ``p_t`` weighted by them.
    """
    total = importance + fisher
    share = torch.where(total > 0, fisher / total, 1.0)
    return total, torch.where(share < 1, anchor + share * (value - anchor), value)
