"""Node-level attention (NLA): the weight of each support node in the prototype of its class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hagmeta.layers.encoders.base import Embedding, LayerSettings
from hagmeta.layers.encoders.gcn import GCN
from hagmeta.sparse.graph import Graph, View

LEARNT = ("softmax", "share", "plain", "permuted")  # values of `nla_weights` with learnt scores
NEAREST_STEPS = 60  # reach over 99 % of the possible gain on average, for up to ten supports


class NodeAttention(nn.Module):
    """Two graph convolutions and a linear layer that score every node (Eqs. 9 and 10).

    With ``weights="degree"`` nothing is learnt: all scores are 1, and only the log-degree differs.
    """

    def __init__(
        self,
        num_features: int,
        settings: LayerSettings,
        *,
        degree: str = "visible",
        weights: str = "softmax",
    ) -> None:
        super().__init__()
        self.degree, self.weights = degree, weights
        self.convolutions = GCN(num_features, settings) if weights in LEARNT else None
        self.last = nn.Linear(settings.embedding, 1) if weights in LEARNT else None

    def forward(self, graph: Graph, view: View, key: Tensor | None) -> NodeScores:
        embedding = (
            self.convolutions.at_few_nodes(graph, view, key) if self.convolutions is not None else None
        )
        if self.degree == "whole":
            view = view._replace(log_degree=graph.log_degree)
        return NodeScores(embedding, self.last, view, self.weights)


@dataclass(frozen=True)
class NodeScores:
    """The scores of all nodes, computed for support nodes on request."""

    embedding: Embedding | None
    last: nn.Linear | None
    view: View
    form: str = "softmax"  # how scores become weights: the setting `nla_weights`

    def weights(self, support: Tensor) -> Tensor:
        """Return weights (classes, shots) that sum to 1 within a class. The paper sums over all supports."""
        nodes = support.flatten()
        score = self.view.log_degree[nodes]
        if self.embedding is not None and self.last is not None:
            score = self.last(F.relu(self.embedding.at(nodes))).squeeze(-1) * score
        if self.form == "plain":
            return score.view_as(support).softmax(-1)
        score = torch.sigmoid(score).view_as(support)  # Eq. 11, with epsilon = 1
        if self.form == "share":
            return score / score.sum(-1, keepdim=True)
        weights = score.softmax(-1)  # Eq. 12
        return to_the_next(weights, support) if self.form == "permuted" else weights


def to_the_next(weights: Tensor, support: Tensor) -> Tensor:
    """Return `weights` (classes, shots), shifted cyclically to the next support of the class."""
    shots = support.shape[-1]
    places = torch.arange(shots, device=support.device) - copies(support)
    return weights.gather(-1, places % shots)


def copies(support: Tensor) -> Tensor:
    """Return how often each support (classes, shots) occurs in its row: see `repeated_to_equal_shots`."""
    return (support.unsqueeze(-1) == support.unsqueeze(-2)).sum(-1)


def relative_entropy(weights: Tensor, support: Tensor) -> Tensor:
    """Return the entropy of the weights of each class, relative to equal weights (classes,).

    It is 1 for equal weights, and NaN for a class with a single support.
    """
    times = copies(support)
    entropy = torch.special.entr(weights * times).div(times).sum(-1)
    return entropy / times.reciprocal().sum(-1).log()


def nearest_weights(support: Tensor, means: Tensor) -> Tensor:
    """Return convex weights (classes, shots) that bring the weighted mean of the supports closest to `means`.

    `support` is (classes, shots, width). The solver takes a fixed number of accelerated exponentiated
    gradient steps.
    """
    offsets = support - means.unsqueeze(-2)
    products = offsets @ offsets.mT  # (classes, shots, shots)
    largest = products.diagonal(dim1=-2, dim2=-1).amax(-1)
    products = products / largest.clamp(min=1e-12)[..., None, None]
    weights = nearest = torch.full_like(products[..., 0], 1 / support.shape[-2])
    logits = torch.zeros_like(weights)
    for step in range(NEAREST_STEPS):
        share = 2 / (step + 2)
        looked_at = (1 - share) * nearest + share * weights
        logits = logits - (products @ looked_at.unsqueeze(-1)).squeeze(-1) / share
        weights = logits.softmax(-1)
        nearest = (1 - share) * nearest + share * weights
    return nearest
