"""TAP (Li et al., WSDM 2025): topology-based class augmentation and prototype calibration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.settings.domains import HIGHEST_WEIGHT, Number
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.encoders.base import Embedding
from hagmeta.layers.prototypes import after_known, mean_prototypes
from hagmeta.methods.base import COMMON, MetaTraining, Method, MethodSettings, Shared, Sizes, Task
from hagmeta.packs.pack import Parameters
from hagmeta.packs.randomness import dropout, part
from hagmeta.sparse.graph import Graph, View

WHOLE, GROUP, ALONE = 0.7, 0.15, 0.15  # weights of the three views in the loss
TEMPERATURE = 0.1  # of cosines that become weights
ROUNDS = 2  # of the calibration
RANDOM_BITS = 24  # of the number that orders the classes for a group; a float holds them exactly


@dataclass(frozen=True, kw_only=True)
class TapSettings(MethodSettings):
    """Settings of TAP."""

    cosface_scale: float = setting(
        15.0,
        "multiply the cosines of CosFace by this factor",
        Number(at_most=HIGHEST_WEIGHT, above=0),
        scope="method",
    )
    cosface_margin: float = setting(
        0.1,
        "subtract this margin from the cosine of the true class in training",
        Number(at_least=0, at_most=2),
        scope="method",
    )
    weight_share: float = setting(
        0.05,
        "share of the new weights after a session; the others are those before it",
        Number(at_least=0, at_most=1),
        scope="method",
    )
    neighbour_share: float = setting(
        0.7,
        "share of the neighbourhood's mean in a new prototype, in each round of the calibration (0: off)",
        Number(at_least=0, at_most=1),
        scope="method",
        branches=(0,),
    )


class Encoded(NamedTuple):
    """The result of a pass over the graph, and the view that it saw."""

    embedding: Embedding
    view: View


class Tap(Method):
    """Cosine prototypes over an encoder that is trained on three views of the graph.

    After the steps of a session, the weights become 5 % new and 95 % old ones. Old prototypes follow the
    drift of the supports. New prototypes are calibrated by nodes near the supports. The paper is inductive:
    a session's graph has nodes of new classes only, cut out with the labels of the queries. This would leak.
    We made these choices to adapt TAP:

    - Sessions see the graph that all methods see, and take the steps that the other methods take. Set
      `finetune_steps: 5` for the number in the paper.
    - Base and novel-train classes are learnt together, from batches of train nodes of all of them. The vector
      of a class in CosFace is its mean in the ordinary view, for all three views.
    - The second view has train nodes of N random classes, with the edges among them. The paper shows all
      groups of N classes at once, and adds 30 % random edges. Our sparse products select nodes but not
      edges, so a step shows one group, without random edges. Unlabelled nodes belong to no group.
    - The third view has no edges, as in the paper.
    - Calibration uses the supports and their direct visible neighbours. The paper uses larger neighbourhoods.
      Neighbours may belong to old classes here, so they are divided among all classes met. Only classes known
      by supports move.
    - Prototypes follow the drift if they cannot be computed again, that is, with `rehearsal: none`. The
      weights of the drift are softmax weights of cosines, at the temperature of the calibration.
    - The encoder is the common one. Set `encoder: gat` for the encoder of the paper.

    Labels: sessions read their supports, and earlier labels as `rehearsal` allows. With `rehearsal: none`
    they see labels of the session only, as in the paper. Under `released` a session has one step, and the
    weights are not mixed.
    """

    own_settings = TapSettings
    defaults: ClassVar = {"classifier": "cosine"}
    differs: ClassVar = (*COMMON, "cosface_scale", "cosface_margin", "weight_share", "neighbour_share")
    traits: ClassVar = MethodTraits(
        title="TAP",
        citation="Yayong Li, Peyman Moghadam, Can Peng, Nan Ye and Piotr Koniusz. Inductive Graph Few-shot"
        " Class Incremental Learning. WSDM 2025.",
        transductive="visible unlabelled neighbours of supports, including queries, move prototypes",
    )
    meta_training = MetaTraining.SUPERVISED
    cosface_scale: Tensor
    cosface_margin: Tensor
    weight_share: Tensor
    neighbour_share: Tensor

    def __init__(self, settings: TapSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.ways, self.calibrates = sizes.n_way, settings.neighbour_share > 0

    @classmethod
    def traits_of(cls, settings: TapSettings) -> MethodTraits:
        traits = super().traits_of(settings)
        return traits if settings.neighbour_share else replace(traits, transductive="")

    @classmethod
    def passes(cls, settings: TapSettings) -> int:
        return 3

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> Encoded:
        return Encoded(self.encoder(shared.graph, view, key), view)

    def classify(self, shared: Shared, encoded: Encoded, task: Task) -> Tensor:
        prototypes = self._calibrated(shared.graph, encoded, task, self._prototypes(shared, encoded, task))
        return self.cosface_scale * cosines(encoded.embedding.at(task.query), prototypes)

    def loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        encoded = self.encode(shared, view, part(key, 0))
        prototypes = self._prototypes(shared, encoded, task)
        logits = self.cosface_scale * cosines(encoded.embedding.at(task.query), prototypes)
        every = torch.ones_like(logits[:, 0])
        group = chosen_classes(task.classes, self.ways, part(key, 1))
        of_group = (target.unsqueeze(-1) == group).any(-1).to(every.dtype)
        members = shared.class_means.shares(task.classes[group]).sum(0) > 0
        graph, alone = shared.graph.for_other_views, shared.graph.without_edges
        views = (
            (graph, view_of(graph, view, members), of_group, GROUP),
            (alone, view_of(alone, view, view.visible > 0), every, ALONE),
        )
        loss = WHOLE * self._cosface(logits, target, every)
        for number, (other, seen, weights, share) in enumerate(views):
            query = self.encoder(other, seen, part(key, 2 + number)).at(task.query)
            loss = loss + share * self._cosface(
                self.cosface_scale * cosines(query, prototypes), target, weights
            )
        return loss, logits

    def session_loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        encoded = self.encode(shared, view, key)
        query = encoded.embedding.at(task.query)
        logits = self.cosface_scale * cosines(query, self._prototypes(shared, encoded, task))
        return self._cosface(logits, target, torch.ones_like(logits[:, 0])), logits

    def session_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """Return the embeddings (nodes, width) and the parameters before the steps of a session."""
        embedded = self.encode(shared, view, None).embedding.all()
        # Steps change parameters in place, so these are copies.
        return embedded.detach(), *(value.detach().clone() for value in self.parameters())

    def after_session(self, shared: Shared, view: View, task: Task) -> Parameters:
        before = view.session_statistics[1:]
        return {
            name: self.weight_share * now + (1 - self.weight_share) * then
            for (name, now), then in zip(self.named_parameters(), before, strict=True)
        }

    def class_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        encoded = self.encode(shared, view, None)
        return (self._calibrated(shared.graph, encoded, task, self._prototypes(shared, encoded, task)),)

    def _cosface(self, logits: Tensor, target: Tensor, weights: Tensor) -> Tensor:
        return cosface_loss(logits, target, self.cosface_scale * self.cosface_margin, weights)

    def _prototypes(self, shared: Shared, encoded: Encoded, task: Task) -> Tensor:
        """Return prototypes (classes, width) before the calibration."""
        embedding, kept = encoded.embedding, task.class_statistics
        if not len(task.support):
            return mean_prototypes(embedding, shared.class_means, task.averaged, task.support)
        nodes = task.support.flatten()
        support = embedding.at(nodes)
        if kept and encoded.view.session_statistics:
            before = encoded.view.session_statistics[0][nodes]
            kept = (drifted(kept[0], before, support),)
        few = support.unflatten(0, task.support.shape).mean(-2)
        return after_known(few, embedding, shared.class_means, task.averaged, kept)

    def _calibrated(self, graph: Graph, encoded: Encoded, task: Task, prototypes: Tensor) -> Tensor:
        """Return prototypes (classes, width), after the calibration of classes known by supports."""
        if not self.calibrates or not len(task.support):
            return prototypes
        view = encoded.view
        supports = torch.zeros_like(view.visible).scatter(0, task.support.flatten(), 1.0)
        near = graph.aggregate(supports.unsqueeze(-1), view._replace(scale=view.visible)) > 0
        near = near * view.learnable.unsqueeze(-1)
        rows, few = encoded.embedding.all(), len(task.support)
        for _ in range(ROUNDS):
            prototypes = calibrated(prototypes, few, rows, near, self.neighbour_share)
        return prototypes


def cosines(rows: Tensor, prototypes: Tensor) -> Tensor:
    """Return the cosines (rows, classes) of `rows` (rows, width) and `prototypes` (classes, width)."""
    return F.normalize(rows, dim=-1) @ F.normalize(prototypes, dim=-1).mT


def cosface_loss(logits: Tensor, target: Tensor, margin: float | Tensor, weights: Tensor) -> Tensor:
    """Return the weighted mean cross-entropy after subtracting `margin` from the logits of the targets."""
    truth = target.unsqueeze(-1) == torch.arange(logits.shape[-1], device=logits.device)
    losses = F.cross_entropy(logits - margin * truth.to(logits.dtype), target, reduction="none")
    return (weights * losses).sum() / weights.sum().clamp(min=1)


def drifted(prototypes: Tensor, before: Tensor, now: Tensor) -> Tensor:
    """Return `prototypes` (classes, width), moved like supports (supports, width) with a similar direction.

    `before` and `now` are embeddings of the supports before and after the steps of a session.
    """
    weights = (cosines(prototypes, before) / TEMPERATURE).softmax(-1)
    return prototypes + weights @ (now - before)


def calibrated(prototypes: Tensor, few: int, rows: Tensor, near: Tensor, share: float | Tensor) -> Tensor:
    """Return `prototypes` (classes, width) after one round of soft assignment.

    Args:
        prototypes: All prototypes. Nodes are divided among all of them.
        few: How many of them move, counted from the last.
        rows: Embeddings (nodes, width).
        near: 1 for nodes to use, else 0: (nodes, 1).
        share: Share of the mean of the assigned nodes in a new prototype.
    """
    assigned = (cosines(rows, prototypes) / TEMPERATURE).softmax(-1)[:, -few:] * near
    means = assigned.mT @ rows / assigned.sum(0).clamp(min=1e-12).unsqueeze(-1)
    return torch.cat([prototypes[:-few], share * means + (1 - share) * prototypes[-few:]])


def chosen_classes(classes: Tensor, count: int, key: Tensor | None) -> Tensor:
    """Return `count` random positions in `classes` (classes,)."""
    ones = (classes >= 0).to(torch.float32).unsqueeze(-1).repeat(1, RANDOM_BITS)
    powers = 2.0 ** torch.arange(RANDOM_BITS, device=classes.device)
    return (dropout(ones, 0.5, key) * powers).sum(-1).topk(min(count, len(classes))).indices


def view_of(graph: Graph, view: View, members: Tensor) -> View:
    """Return the part of `view` that shows only nodes where `members` (nodes,) is true."""
    visible = view.visible * members
    degree = graph.aggregate(visible.unsqueeze(-1), view._replace(scale=visible)).squeeze(-1).clamp(min=1)
    return view._replace(visible=visible, scale=visible / degree.sqrt(), log_degree=degree.log())
