"""Locations of nodes on a graph, relative to reference nodes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Connections(nn.Module):
    """Embeds the connection of a node with a reference: the walks between them, and the reference itself."""

    def __init__(self, walks: int, width: int) -> None:
        super().__init__()
        self.walks = nn.Linear(walks, width)
        self.ends = nn.Linear(width, width, bias=False)
        self.last = nn.Linear(width, width)

    def forward(self, walks: Tensor, ends: Tensor) -> Tensor:
        """Return connections (nodes, references, width) of unit length.

        Args:
            walks: The probabilities (nodes, references, walks). Square roots spread the small ones.
            ends: The embeddings (references, width).
        """
        hidden = self.walks(walks.sqrt()) + self.ends(F.normalize(ends, dim=-1))
        return F.normalize(self.last(F.relu(hidden)), dim=-1)


class LocationAttention(nn.Module):
    """Averages the connections of a node with learnt weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(width, width)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, connections: Tensor, reached: Tensor) -> Tensor:
        """Return locations (nodes, width); 0 for a node that reaches no reference.

        Args:
            connections: The connections (nodes, references, width).
            reached: Whether any walk exists (nodes, references).
        """
        score = self.score(F.leaky_relu(self.map(connections))).squeeze(-1)
        weights = (score - score.amax(-1, keepdim=True)).exp() * reached
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-12)
        return (weights.unsqueeze(-1) * connections).sum(-2)


class Located(nn.Module):
    """The relative and the absolute location. Both share the connections, but not the attention."""

    def __init__(self, walks: int, width: int) -> None:
        super().__init__()
        self.connections = Connections(walks, width)
        self.relative, self.absolute = LocationAttention(width), LocationAttention(width)

    def forward(
        self, to_classes: Tensor, class_ends: Tensor, to_hubs: Tensor, hub_ends: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return locations (nodes, width) relative to the classes, and to the hubs."""
        pairs = ((self.relative, to_classes, class_ends), (self.absolute, to_hubs, hub_ends))
        relative, absolute = (
            attention(self.connections(walks, ends), (walks > 0).any(-1)) for attention, walks, ends in pairs
        )
        return relative, absolute


def class_walks(walks: list[Tensor], members: Tensor, others: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    """Return the mean probabilities (nodes, classes, 2 x lengths) of walks to each class, and backward.

    A node is no reference of itself.

    Args:
        walks: For each length, the probabilities (nodes, references).
        members: Which references (references, classes) are in a class.
        others: 0 where a reference is the node itself (nodes, references), else 1.
        starts: The backward factors of the nodes (nodes,).
        ends: The backward factors of the references (references,).
    """
    count = (others @ members).clamp(min=1)
    backward = members * ends.unsqueeze(-1)
    means = [(walk * others @ members / count) for walk in walks]
    means += [(walk * others @ backward / count) * starts.unsqueeze(-1) for walk in walks]
    return torch.stack(means, dim=-1)
