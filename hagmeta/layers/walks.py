"""Random walks on the visible graph: PageRank, and how likely a walk is to end at a node.

All functions are exact, so nothing is sampled. A walk goes from a node to one of its visible neighbours, each
with the same probability.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hagmeta.sparse.graph import Graph, View, neighbour_shares

DAMPING = 0.85
ROUNDS = 50  # of power iteration; the rest of the sum is below DAMPING ** ROUNDS, or 0.0003


def pagerank(graph: Graph, view: View) -> Tensor:
    """Return the PageRank (nodes,) of the visible nodes; 0 for the others."""
    start = view.visible / view.visible.sum()
    neighbours = view.log_degree.exp().round() - 1
    share = torch.where(neighbours > 0, 1 / neighbours.clamp(min=1), 0)
    plain = view._replace(scale=view.visible)
    rank = start
    for _ in range(ROUNDS):
        sent = rank * share
        got = graph.aggregate(sent.unsqueeze(-1), plain).squeeze(-1) - sent * view.visible
        lost = (rank * (neighbours <= 0)).sum()  # nodes without neighbours send to all
        rank = DAMPING * (got + lost * start) + (1 - DAMPING) * start
    return rank


def one_hot(nodes: Tensor, count: int) -> Tensor:
    """Return indicator columns (count, nodes) of some nodes."""
    return (torch.arange(count, device=nodes.device).unsqueeze(-1) == nodes).float()


def walks_to(graph: Graph, view: View, ends: Tensor, length: int) -> list[Tensor]:
    """Return, for walks of 1 to `length` steps, the probability (nodes, ends) to end at each of `ends`."""
    at, found = one_hot(ends, graph.num_nodes), []
    for _ in range(length):
        at = graph.neighbour_means(at, view)
        found.append(at)
    return found


def backward_factors(view: View) -> tuple[Tensor, Tensor]:
    """Return factors (nodes,) of starts and (nodes,) of ends that turn walks around.

    A walk from a start to an end, times both factors, has the probability of the same walk backward.
    """
    share = neighbour_shares(view.scale)  # 1 / neighbours
    return torch.where(share > 0, 1 / share.clamp(min=1e-12), 0), share
