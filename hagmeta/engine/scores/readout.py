"""Turn the logits of a method into scores: logit adjustment, class shares, and smoothing over the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hagmeta.engine.context import Context
from hagmeta.engine.known.session import Known
from hagmeta.layers.scores.class_shares import scale_of, share_adjustment
from hagmeta.layers.scores.correct_and_smooth import corrected_scores
from hagmeta.layers.scores.smoothing import CONFIDENCE, smoothed_scores
from hagmeta.methods.base import Method, Shared, Task
from hagmeta.packs.pack import Pack, stack_padded
from hagmeta.sparse.graph import View

TINY = 1e-12  # a smoothed score can be zero
# How scores spread over the graph, by the setting `spread`.
SPREADS: dict[str, Callable[..., Tensor]] = {
    "smoothing": smoothed_scores,
    "correct-and-smooth": corrected_scores,
}


class Labels(NamedTuple):
    """The labelled nodes of one seed in a session, without repetition, with the labels as given."""

    nodes: np.ndarray  # (labels,)
    position: np.ndarray  # (labels,) positions of their classes among all classes seen so far


def smoothed(
    method: Method,
    shared: Shared,
    spread: Callable[..., Tensor],
    share: Tensor,
    view: View,
    task: Task,
    adjustment: Tensor,
    uncounted: tuple[Tensor, ...],
    labelled: Tensor,
    position: Tensor,
) -> Tensor:
    """Return the scores (queries, classes) of `method`, spread over the visible graph.

    Logits are scaled first, as for `share_adjustment`. So the result does not depend on a method's scale.

    Args:
        method: the method of one seed.
        shared: the graph and the class means.
        spread: how scores spread, one of `SPREADS`.
        share: the weight of the neighbours in each round, a scalar.
        view: the visible part of the graph.
        task: the classes and queries.
        adjustment: added to all logits (classes,).
        uncounted: as for `everywhere`.
        labelled: the labelled nodes (labels,).
        position: the class positions of these nodes (labels,).
    """
    logits = everywhere(method, shared, view, task, adjustment, uncounted)
    scores = (scale_of(logits, view.learnable, CONFIDENCE) * logits).softmax(-1)
    return spread(shared.graph, view, scores, labelled, position, share)[task.query]


def reweighted(
    method: Method, shared: Shared, view: View, task: Task, adjustment: Tensor, uncounted: tuple[Tensor, ...]
) -> Tensor:
    """Return the logits (queries, classes) of `method`, re-weighted by class shares."""
    return everywhere(method, shared, view, task, adjustment, uncounted)[task.query]


def everywhere(
    method: Method, shared: Shared, view: View, task: Task, adjustment: Tensor, uncounted: tuple[Tensor, ...]
) -> Tensor:
    """Return the logits (nodes, classes) of all nodes.

    Args:
        method: the method of one seed.
        shared: the graph and the class means.
        view: the visible part of the graph.
        task: the classes.
        adjustment: added to all logits (classes,).
        uncounted: nodes that do not count in the class shares; nothing if logits are not re-weighted.
    """
    nodes = torch.arange(shared.graph.num_nodes, device=task.query.device)
    every = nodes + torch.zeros_like(task.query[:1])  # under vmap this has a row per seed, like queries
    (logits,) = method.logits(shared, view, (task._replace(query=every),))
    logits = logits + adjustment
    for labelled in uncounted:
        counted = view.learnable.clone()
        counted[labelled] = 0.0
        logits = logits + share_adjustment(logits, counted)
    return logits


class ReadOut:
    """Computes the scores of queries. With all settings of `ReadOutSettings` off, they are the logits."""

    def __init__(self, context: Context) -> None:
        self._context = context
        settings, values = context.settings, context.runtime.values
        self._smooths, self._adjusts = settings.smoothing > 0, settings.logit_adjustment > 0
        self._reweights = settings.prior == "estimated"
        self._spread = SPREADS[settings.spread]
        self._smoothing, self._tau = values("smoothing"), values("logit_adjustment")
        # If only prototypes are kept of a class: the number of labels behind them (pack, classes).
        self.kept = np.empty((len(context.scenarios), 0), dtype=np.int64)
        self._guessed = np.empty((len(context.scenarios), 0), dtype=np.int64)  # of the session

    @torch.no_grad()
    def scores(self, pack: Pack, shared: Shared, known: Known, task: Task) -> Tensor:
        """Return scores (pack, queries, classes) after the steps of a session."""
        scores: Tensor
        asks_all = self._smooths or self._reweights
        if not asks_all:
            (scores,) = pack.run("logits", (shared,), known.view, (task,))
            if not self._adjusts:
                return scores
        labels = list(self._labels(known, task))
        adjustment = self._adjustment(labels, task)
        if not asks_all:
            return scores + adjustment.unsqueeze(1)
        device = self._context.runtime.device
        step = known.view, task, adjustment, self._uncounted(labels)
        if not self._smooths:
            scores = pack.run(reweighted, (shared,), *step)
            return scores
        held = (stack_padded(part).to(device) for part in zip(*labels, strict=True))
        share = torch.from_numpy(self._smoothing).to(device).expand(pack.size)
        scores = pack.run(smoothed, (shared, self._spread), share, *step, *held)
        return scores

    def confidence(self, scores: Tensor, temperature: Tensor | None = None) -> Tensor:
        """Return the probability of each prediction (pack, queries), given `scores`.

        `temperature` (pack,) divides the logarithms of all probabilities, which are then normalised again.
        """
        if temperature is None:
            return self.probabilities(scores).amax(-1)
        return (self.log_shares(scores) / temperature[:, None, None]).softmax(-1).amax(-1)

    def logits(self, scores: Tensor) -> Tensor:
        """Return logits of the same shape as `scores`."""
        return scores.clamp(min=TINY).log() if self._smooths else scores

    def log_shares(self, scores: Tensor) -> Tensor:
        """Return the logarithms of probabilities (pack, queries, classes), given `scores`."""
        return self.probabilities(scores).clamp(min=TINY).log() if self._smooths else scores.log_softmax(-1)

    @torch.no_grad()
    def guesses(self, pack: Pack, shared: Shared, known: Known, task: Task, count: int) -> Tensor:
        """Return the `count` most confident learnable unlabelled nodes of each class with supports.

        The result is (pack, classes, count).
        """
        nodes = torch.arange(shared.graph.num_nodes, device=self._context.runtime.device)
        every = task._replace(query=nodes.expand(pack.size, -1))
        self._guessed = self._guessed[:, :0]
        few, kept = task.support.shape[1], self.kept
        shares = self.probabilities(self.scores(pack, shared, known, every))[..., -few:]
        self.kept = kept  # undo the update by `scores`, because the session is not finished
        free = known.view.learnable > 0
        for seed, each in enumerate(self._labels(known, task)):
            free[seed, torch.from_numpy(each.nodes).to(free.device)] = False
        shares = shares.masked_fill(~free.unsqueeze(-1), -1.0)
        guesses = shares.topk(min(count, int(free.sum(-1).min())), dim=1).indices.mT
        self._guessed = guesses.flatten(1).cpu().numpy()
        return guesses

    def probabilities(self, scores: Tensor) -> Tensor:
        """Return class probabilities of the same shape as `scores`."""
        return scores / scores.sum(-1, keepdim=True).clamp(min=TINY) if self._smooths else scores.softmax(-1)

    def _labels(self, known: Known, task: Task) -> Iterator[Labels]:
        """Yield the labelled nodes of each seed: those behind averages, and supports."""
        for seed, (nodes, labels) in enumerate(known.averaged_over):
            classes, averaged, support = (part[seed].cpu().numpy() for part in task[:3])
            many = np.isin(labels, averaged)
            few = np.arange(len(classes) - len(support), len(classes))
            position = self._context.scenarios[seed].positions(classes)[labels[many]]
            every = np.concatenate([nodes[many], support.ravel()])
            # `repeated_to_equal_shots` repeats supports.
            once, first = np.unique(every, return_index=True)
            yield Labels(once, np.concatenate([position, np.repeat(few, support.shape[1])])[first])

    def _uncounted(self, labels: list[Labels]) -> tuple[Tensor, ...]:
        """Return the labelled nodes (pack, labels) of each seed, without guesses, if shares are estimated."""
        if not self._reweights:
            return ()
        pairs = zip(labels, self._guessed, strict=True)
        nodes = [np.setdiff1d(each.nodes, guessed) for each, guessed in pairs]
        return (stack_padded(nodes).to(self._context.runtime.device),)

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
