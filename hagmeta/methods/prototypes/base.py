"""Base class of methods that keep the pre-trained encoder as it is."""

from __future__ import annotations

from torch import Tensor

from hagmeta.layers.encoders.base import Embedding
from hagmeta.methods.base import Method, Shared
from hagmeta.sparse.graph import Graph, View


class FrozenEncoder(Method):
    """A frozen encoder without dropout. Its rows are computed once per view."""

    freezes_encoder = True

    def fixed_features(self, graph: Graph, view: View) -> Tensor:
        """Return the frozen encoder's rows (nodes, columns)."""
        return self.encoder.propagate(graph, view, None)

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> Embedding:
        (propagated,) = view.fixed_features or (self.fixed_features(shared.graph, view),)
        return self.encoder.embedding(shared.graph, view, propagated)
