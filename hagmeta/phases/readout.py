"""Turn the logits of a method into scores: logit adjustment, and smoothing over the graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hagmeta.methods.base import Method, Shared, Task
from hagmeta.nn.smoothing import smoothed_scores
from hagmeta.packs.pack import Pack, stack_padded
from hagmeta.phases.context import Context
from hagmeta.phases.knowledge import Knowledge
from hagmeta.sparse.graph import View


class Labels(NamedTuple):
    """The labelled nodes of one seed in a session, without repetition, with the labels as given."""

    nodes: np.ndarray  # (labels,)
    position: np.ndarray  # (labels,) positions of their classes among all classes seen so far


def smoothed(
    method: Method,
    shared: Shared,
    share: Tensor,
    view: View,
    task: Task,
    adjustment: Tensor,
    labelled: Tensor,
    position: Tensor,
) -> Tensor:
    """Return the scores (queries, classes) of `method`, smoothed over the visible graph.

    Args:
        method: the method of one seed.
        shared: the graph and the class means.
        share: the weight of the neighbours in each round, a scalar.
        view: the visible part of the graph.
        task: the classes and queries.
        adjustment: added to all logits (classes,).
        labelled: the labelled nodes (labels,), whose scores are fixed.
        position: the class positions of these nodes (labels,).
    """
    nodes = torch.arange(shared.graph.num_nodes, device=task.query.device)
    everywhere = nodes + torch.zeros_like(task.query[:1])  # under vmap this has a row per seed, like queries
    (scores,) = method.logits(shared, view, (task._replace(query=everywhere),))
    scores = (scores + adjustment).softmax(-1)
    return smoothed_scores(shared.graph, view, scores, labelled, position, share)[task.query]


class ReadOut:
    """Computes the scores of queries. With `smoothing` and `logit_adjustment` off they are the logits."""

    def __init__(self, context: Context) -> None:
        self._context = context
        settings, values = context.settings, context.runtime.values
        self._smooths, self._adjusts = settings.smoothing > 0, settings.logit_adjustment > 0
        self._smoothing, self._tau = values("smoothing"), values("logit_adjustment")
        # If only prototypes are kept of a class: the number of labels behind them (pack, classes).
        self.kept = np.empty((len(context.scenarios), 0), dtype=np.int64)

    @torch.no_grad()
    def scores(self, pack: Pack, shared: Shared, knowledge: Knowledge, task: Task) -> Tensor:
        """Return scores (pack, queries, classes) after the steps of a session."""
        scores: Tensor
        if not self._smooths:
            (scores,) = pack.run("logits", (shared,), knowledge.view, (task,))
            if not self._adjusts:
                return scores
        labels = list(self._labels(knowledge, task))
        adjustment = self._adjustment(labels, task)
        if not self._smooths:
            return scores + adjustment.unsqueeze(1)
        device = self._context.runtime.device
        held = (stack_padded(part).to(device) for part in zip(*labels, strict=True))
        share = torch.from_numpy(self._smoothing).to(device).expand(pack.size)
        scores = pack.run(smoothed, (shared,), share, knowledge.view, task, adjustment, *held)
        return scores

    def confidence(self, scores: Tensor) -> Tensor:
        """Return the probability of each prediction (pack, queries), given `scores`."""
        return self._shares(scores).amax(-1)

    @torch.no_grad()
    def guesses(self, pack: Pack, shared: Shared, knowledge: Knowledge, task: Task, count: int) -> Tensor:
        """Return the `count` most confident visible unlabelled nodes of each class with supports.

        The result is (pack, classes, count).
        """
        nodes = torch.arange(shared.graph.num_nodes, device=self._context.runtime.device)
        everywhere = task._replace(query=nodes.expand(pack.size, -1))
        few, kept = task.support.shape[1], self.kept
        shares = self._shares(self.scores(pack, shared, knowledge, everywhere))[..., -few:]
        self.kept = kept  # undo the update by `scores`, because the session is not finished
        free = knowledge.view.visible > 0
        for seed, each in enumerate(self._labels(knowledge, task)):
            free[seed, torch.from_numpy(each.nodes).to(free.device)] = False
        shares = shares.masked_fill(~free.unsqueeze(-1), -1.0)
        return shares.topk(min(count, int(free.sum(-1).min())), dim=1).indices.mT

    def _shares(self, scores: Tensor) -> Tensor:
        return scores / scores.sum(-1, keepdim=True) if self._smooths else scores.softmax(-1)

    def _labels(self, knowledge: Knowledge, task: Task) -> Iterator[Labels]:
        """Yield the labelled nodes of each seed: those behind averages, and supports."""
        for seed, (nodes, labels) in enumerate(knowledge.averaged_over):
            classes, averaged, support = (part[seed].cpu().numpy() for part in task[:3])
            many = np.isin(labels, averaged)
            few = np.arange(len(classes) - len(support), len(classes))
            position = self._context.scenarios[seed].positions(classes)[labels[many]]
            every = np.concatenate([nodes[many], support.ravel()])
            # `levelled` repeats supports.
            once, first = np.unique(every, return_index=True)
            yield Labels(once, np.concatenate([position, np.repeat(few, support.shape[1])])[first])

    def _adjustment(self, labels: list[Labels], task: Task) -> Tensor:
        """Return the logit adjustment (pack, classes) of Menon et al. (ICLR 2021).

        The prior is the share of each class in the labels.
        """
        classes = task.classes.shape[-1]
        counts = np.stack([np.bincount(each.position, minlength=classes) for each in labels])
        if self._context.tasks.keeps_prototypes:
            counts[:, : self.kept.shape[1]] = self.kept
            self.kept = counts
        assert counts.all(), "every class seen so far has a label"
        prior = counts / counts.sum(1, keepdims=True)
        return torch.from_numpy(-self._tau[:, None] * np.log(prior)).to(
            self._context.runtime.device, torch.float32
        )
