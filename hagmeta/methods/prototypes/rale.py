"""RALE (Liu et al., AAAI 2021): relative and absolute location embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from hagmeta.common.settings.domains import Whole
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.encoders.base import Embedding
from hagmeta.layers.locations import Located, class_walks
from hagmeta.layers.prototypes import distance_logits, mean_prototypes
from hagmeta.layers.walks import backward_factors, one_hot, pagerank, walks_to
from hagmeta.methods.base import COMMON, Method, MethodSettings, Shared, Sizes, Task
from hagmeta.packs.randomness import keys, seeded, uniform
from hagmeta.sparse.graph import Graph, View

HUB_SHARE = 0.05  # hubs are among this share of the visible nodes, those with the highest PageRank


@dataclass(frozen=True, kw_only=True)
class RaleSettings(MethodSettings):
    """Settings of RALE."""

    walk_length: int = setting(
        6,
        "maximum steps of a walk between a node and a reference",
        Whole(at_least=1, at_most=50),
        scope="method",
    )
    hubs: int = setting(
        10,
        "hubs that define absolute locations",
        Whole(at_least=1, at_most=1000),
        scope="method",
    )
    references: int = setting(
        5,
        "labelled nodes of a class that walks go to, at most",
        Whole(at_least=1, at_most=1000),
        scope="method",
    )


class References(NamedTuple):
    """The nodes by which the classes of a task are located, in the order of the classes."""

    nodes: Tensor  # (references,)
    members: Tensor  # (references, classes) 1 if the reference belongs to the class


class Encoded(NamedTuple):
    """One pass over the graph."""

    embedding: Embedding
    view: View
    hubs: Tensor  # (nodes, hubs, 1 + walks) whether a node is the hub, and its walks


class Rale(Method):
    """Prototypes of embeddings and of two locations: relative to the task's labels, and to hubs.

    As in the paper, a node's relative location is attention over its connections with the classes of the
    task. Its absolute location is attention over its connections with hubs. A connection consists of paths
    between the node and reference nodes. Hubs are drawn from the 5 % of nodes with the highest PageRank.

    The paper samples paths and encodes their nodes with self-attention (8 heads). We do not: a session has
    hundreds of references and thousands of queries, so millions of paths per seed. We made these choices to
    adapt it:

    - A connection is described by random walks of 1 to 6 steps, forward and backward. For each length, the
      probability to arrive is exact, computed by sparse products. A small network encodes it together with
      the embedding of the reference, as a vector of unit length. So the nodes between both ends do not enter.
    - The 10 hubs are the same for all nodes, and are chosen again when the visible graph changes. The paper
      draws them per node, and its paths to hubs have at most 3 steps.
    - Prototypes replace the classifier, which has rows for a fixed number of classes. They are means of
      embeddings, and mean locations of the references of a class.
    - References are the supports of a class. A class with more than 5 labels has 5 of them, drawn once. Its
      embedding is still the mean over all labels. No node is a reference of itself.
    - Training uses pseudo-incremental episodes, so that attention meets as many classes as in a session. With
      N-way tasks, as in the paper, relative locations hardly differed between classes in a session. On
      held-out classes of Debian, accuracy was 0.681 with such tasks and 0.703 with episodes (one seed).
    - Instead of a step of MAML on the supports of a task, sessions fine-tune it like the other methods.
    - The encoder is the common one. The paper has a GraphSAGE variant with embeddings of unit length.

    Labels of earlier sessions are read again as `rehearsal` allows. With `rehearsal: none`, walks go to the
    supports of the session only, and older prototypes stay as computed in their session.
    """

    own_settings = RaleSettings
    differs: ClassVar = COMMON
    traits: ClassVar = MethodTraits(
        title="RALE",
        citation="Zemin Liu, Yuan Fang, Chenghao Liu and Steven C. H. Hoi. Relative and Absolute Location"
        " Embedding for Few-Shot Node Classification on Graph. AAAI 2021.",
    )
    key: Tensor  # decides which nodes are drawn

    def __init__(self, settings: RaleSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.length = settings.walk_length
        self.hubs, self.references = (min(each, sizes.nodes) for each in (settings.hubs, settings.references))
        self.located = seeded(
            seed, "init/locations", lambda: Located(2 * settings.walk_length, settings.embedding)
        )
        self.register_buffer("key", torch.tensor(int(keys([seed], "references"))), persistent=False)

    @torch.no_grad()
    def fixed_features(self, graph: Graph, view: View) -> Tensor:
        """Return (nodes, hubs x (1 + walks)): whether the node is the hub, and the walks between them."""
        hubs = self._hubs(graph, view)
        start, end = backward_factors(view)
        walks = walks_to(graph, view, hubs, self.length)
        walks += [walk * start.unsqueeze(-1) * end[hubs] for walk in walks]
        return torch.stack([one_hot(hubs, graph.num_nodes), *walks], dim=-1).flatten(1)

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> Encoded:
        (propagated,) = view.fixed_features or (self.fixed_features(shared.graph, view),)
        hubs = propagated.unflatten(-1, (-1, 1 + 2 * self.length))
        return Encoded(self.encoder(shared.graph, view, key), view, hubs)

    def classify(self, shared: Shared, encoded: Encoded, task: Task) -> Tensor:
        return distance_logits(*self._located(shared, encoded, task))

    def class_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        task = task._replace(query=task.query[:1])  # not needed here
        return (self._located(shared, self.encode(shared, view, None), task)[1],)

    def _hubs(self, graph: Graph, view: View) -> Tensor:
        """Return the hubs (hubs,). Ranks are rounded, so that no rounding error of a device decides."""
        visible = view.visible.sum()
        rank = (pagerank(graph, view) * visible * 1000).round() * view.learnable
        place = rank.argsort(descending=True, stable=True).argsort()
        best = place < (HUB_SHARE * visible).clamp(min=self.hubs)
        return torch.where(best, uniform(self.key, graph.num_nodes), -1).topk(self.hubs).indices

    def _references(self, shared: Shared, task: Task) -> References:
        """Return the references of the classes known by averages, then of those known by supports."""
        parts = []  # nodes and whether they count, both (classes, references)
        if len(task.averaged):
            labelled = shared.class_means.shares(task.averaged) > 0
            order = uniform(self.key, shared.graph.num_nodes)
            drawn = torch.where(labelled, order, -1).topk(self.references)
            parts.append((drawn.indices, drawn.values >= 0))
        if len(task.support):
            chosen = spaced(task.support, self.references)
            parts.append((chosen, torch.ones_like(chosen, dtype=torch.bool)))
        places = torch.arange(len(task.averaged) + len(task.support), device=task.query.device)
        rows = places.split([len(nodes) for nodes, _ in parts])
        owner = [row.repeat_interleave(nodes.shape[1]) for row, (nodes, _) in zip(rows, parts, strict=True)]
        nodes, counts = (
            torch.cat([part.flatten() for part in column]) for column in zip(*parts, strict=True)
        )
        return References(nodes, (torch.cat(owner).unsqueeze(-1) == places) * counts.unsqueeze(-1).float())

    def _located(self, shared: Shared, encoded: Encoded, task: Task) -> tuple[Tensor, Tensor]:
        """Return vectors of the queries (queries, 3 x width), and prototypes (classes, 3 x width)."""
        embedding, view, hubs = encoded
        asked = torch.cat([task.query, hubs[..., 0].argmax(0)])
        query, hub_ends = embedding.at(asked).split([len(task.query), hubs.shape[1]])
        means = mean_prototypes(embedding, shared.class_means, task.averaged, task.support)
        references = self._references(shared, task)
        nodes = torch.cat([references.nodes, task.query])
        walks = self._walks(shared.graph, view, references, nodes)
        locations = torch.cat(self.located(walks, means, hubs[nodes][..., 1:], hub_ends), dim=-1)
        of_references, of_queries = locations.split([len(references.nodes), len(task.query)])
        share = references.members / references.members.sum(0)  # (references, classes)
        prototypes = torch.cat([share.mT @ of_references, means], dim=-1)
        prototypes = torch.cat([*task.class_statistics, prototypes]) if task.class_statistics else prototypes
        return torch.cat([of_queries, query], dim=-1), prototypes

    @torch.no_grad()
    def _walks(self, graph: Graph, view: View, references: References, nodes: Tensor) -> Tensor:
        """Return the walks (nodes, classes, 2 x lengths) from some nodes to the classes."""
        start, end = backward_factors(view)
        walks = [walk[nodes] for walk in walks_to(graph, view, references.nodes, self.length)]
        others = (nodes.unsqueeze(-1) != references.nodes).float()
        return class_walks(walks, references.members, others, start[nodes], end[references.nodes])


def spaced(support: Tensor, most: int) -> Tensor:
    """Return at most `most` of the supports (classes, shots) of each class, evenly spaced."""
    shots = support.shape[1]
    if shots <= most:
        return support
    return support[:, torch.arange(most, device=support.device) * shots // most]
