"""GraphAny (Zhao et al., ICLR 2025): least squares on propagations, fused by a trained network."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from hagmeta.common.traits import MethodTraits
from hagmeta.layers.encoders.base import Encoder
from hagmeta.layers.scores.graphany import Fusion, least_squares, products, propagated
from hagmeta.layers.statistics import CHUNK, LabelledRows
from hagmeta.methods.base import MetaTraining, Method, SessionLearning, Shared, Sizes, Task
from hagmeta.methods.closed_form.base import NO_ENCODER
from hagmeta.sparse.graph import Graph, View

WEIGHTS = Path(__file__).with_name("graphany.npz")  # tools/train_graphany.py writes it
EVERY = "every"  # the weights that were trained on all embedded graphs


class GraphAny(Method):
    """Weighted sums of three least-squares predictions. A network that saw other graphs gives the weights.

    Inputs X are propagated in five ways: X, PX, PPX, (I - P)X and (I - P)(I - P)X. P averages over visible
    neighbours. For each, least squares maps labelled nodes to one-hot labels, with the smallest norm and
    without ridge. The distances among the five score vectors of a node enter the network. They depend neither
    on the features nor on the number of classes, so the network was trained on the other embedded graphs
    (`tools/train_graphany.py`). It is never trained on the graph that it predicts.

    We made these choices to adapt it:

    - Inputs are the columns of `inputs: svd`, as in other closed forms. With as many columns as labelled
      nodes, least squares interpolates. Directions with less than 1e-8 of the largest variance do not count.
    - All classes have the same weight, however many labels they have. Otherwise classes with hundreds of
      labels would dominate classes with K.

    Labels: as in the other closed-form methods. With `rehearsal: none` the products of features and labels
    stay as computed in the session of a class.
    """

    decides: ClassVar = NO_ENCODER
    differs: ClassVar = ("smoothing", "logit_adjustment")
    traits: ClassVar = MethodTraits(
        title="GraphAny",
        citation="Jianan Zhao, Zhaocheng Zhu, Mikhail Galkin, Hesham Mostafa, Michael Bronstein and Jian"
        " Tang. Fully-inductive Node Classification on Arbitrary Graphs. ICLR 2025.",
        closed_form=True,
        pretrained_elsewhere=True,
    )
    meta_training = MetaTraining.NONE
    session_learning = SessionLearning.NONE
    freezes_encoder = True

    def __init__(self, settings: Any, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.columns, self.network = sizes.narrow, Fusion(weights_without(settings.dataset))

    @classmethod
    def new_encoder(cls, settings: Any, sizes: Sizes) -> Encoder | None:
        return None

    @classmethod
    def narrow_columns(cls, settings: Any, columns: int) -> int:
        return columns

    def fixed_features(self, graph: Graph, view: View) -> Tensor:
        inputs = graph.narrow_inputs(view, torch.eye(self.columns, device=graph.device))
        return propagated(graph, view, inputs)

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> Tensor:
        (features,) = view.fixed_features or (self.fixed_features(shared.graph, view),)
        return features

    def classify(self, shared: Shared, encoded: Tensor, task: Task) -> Tensor:
        slopes = least_squares(*self._products(shared, encoded, task)).to(encoded.dtype)
        scores = torch.einsum("nfw,fwc->nfc", encoded[task.query], slopes)
        return self.network(scores)[0]

    def class_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        return self._products(shared, self.encode(shared, view, None), task)

    def embeddings(self, shared: Shared, view: View, nodes: Tensor) -> Tensor:
        return self.encode(shared, view, None)[nodes].flatten(1)

    def _products(self, shared: Shared, features: Tensor, task: Task) -> tuple[Tensor, Tensor]:
        """Return the products of features with features and with labels, of all classes."""
        known = []
        if len(task.averaged):
            nodes, share = shared.class_means.nodes(task.averaged, CHUNK)
            known.append(LabelledRows(nodes, share, features.__getitem__, shared.class_means.most_labels))
        if len(task.support):
            alike = torch.full_like(features[task.support, 0, 0], 1 / task.support.shape[-1])
            known.append(LabelledRows(task.support, alike, features.__getitem__))
        grams, crosses = [*task.class_statistics[:1]], [*task.class_statistics[1:]]
        for group in known:
            classes = torch.arange(len(group.nodes), device=features.device)
            pairs = [products(r, s, (owner == classes).to(s.dtype)) for r, s, owner in group.chunks()]
            grams.append(torch.stack([gram for gram, _ in pairs]).sum(0))
            crosses.append(torch.stack([cross for _, cross in pairs]).sum(0))
        return torch.stack(grams).sum(0), torch.cat(crosses, -1)


@cache
def weights_without(dataset: str) -> Mapping[str, np.ndarray]:
    """Return the weights trained on all embedded graphs but `dataset`."""
    with np.load(WEIGHTS) as stored:
        graphs = {name.partition("/")[0] for name in stored.files}
        chosen = f"{dataset if dataset in graphs else EVERY}/"
        return {name: stored[name] for name in stored.files if name.startswith(chosen)}
