"""Train GraphAny on embedded graphs, and write its weights into the package.

``python -m tools.train_graphany`` trains once for each embedded graph, on all the others, and once on all of
them. Every run writes the same weights on the same machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hagmeta import datasets
from hagmeta.datasets import EMBEDDED
from hagmeta.layers.scores.graphany import CHANNELS, fused, least_squares, products, propagated, relations
from hagmeta.methods.closed_form.graphany import EVERY, WEIGHTS
from hagmeta.sparse.graph import View
from hagmeta.sparse.inputs import narrow_inputs
from hagmeta.sparse.plain import PlainGraph

STEPS, BATCH, SHOTS = 1000, 128, 5  # as published
RATE, DECAY, HIDDEN, DROPOUT = 2e-4, 2e-2, 128, 0.5
FUSED = 3  # the first channels
LEAST_NODES = SHOTS + 1  # per class: smaller classes are left out


class TrainingGraph:
    """The channels and labels of one graph."""

    def __init__(self, name: str) -> None:
        data = datasets.load(name, Path())
        graph, every = PlainGraph(data, torch.device("cpu")), np.ones(data.num_nodes, dtype=bool)
        visible, scale, log_degree = (part[0] for part in graph.view(every[None])[:3])
        view = View(visible, scale, log_degree)
        inputs, width = narrow_inputs(data.kind, data.num_features)
        if inputs == "svd":
            made = graph.inputs(inputs, every)
            view = view._replace(narrow=tuple(torch.from_numpy(part) for part in made))
        self.channels = propagated(graph, view, graph.narrow_inputs(view, torch.eye(width)))
        labels = data.labels
        large = np.flatnonzero(np.bincount(labels[labels >= 0]) >= LEAST_NODES)
        self.nodes = [np.flatnonzero(labels == label) for label in large]

    def batch(self, random: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Return the scores (BATCH, channels, classes) of some nodes, and their classes."""
        drawn = [random.permutation(nodes) for nodes in self.nodes]
        known = torch.from_numpy(np.stack([nodes[:SHOTS] for nodes in drawn]))
        labels = torch.eye(len(drawn)).repeat_interleave(SHOTS, 0)
        share = torch.full((known.numel(), 1), 1 / SHOTS)
        slopes = least_squares(*products(self.channels[known.ravel()], share, labels)).float()
        rest = [np.stack([nodes[SHOTS:], np.full(len(nodes) - SHOTS, n)]) for n, nodes in enumerate(drawn)]
        asked = torch.from_numpy(random.permutation(np.concatenate(rest, 1), axis=1)[:, :BATCH])
        return torch.einsum("nfw,fwc->nfc", self.channels[asked[0]], slopes), asked[1]


def folded(state: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Return the weights of `Fusion`, given those of an MLP with batch norm after its ReLU.

    Args:
        state: By name, as in the authors' files without their prefix: ``lins.0.weight``, ``bns.0.bias``.
    """
    found = {name: value.double() for name, value in state.items()}
    last = 1 if "lins.1.weight" in found else 0
    if last:
        factor = found["bns.0.weight"] / (found["bns.0.running_var"] + nn.BatchNorm1d(1).eps).sqrt()
        shift = found["bns.0.bias"] - factor * found["bns.0.running_mean"]
        found["lins.1.bias"] = found["lins.1.bias"] + found["lins.1.weight"] @ shift
        found["lins.1.weight"] = found["lins.1.weight"] * factor
    names = [f"{layer}.{part}" for layer in range(last + 1) for part in ("bias", "weight")]
    return {name: found[f"lins.{name}"].float().numpy() for name in names}


def train(graphs: Sequence[TrainingGraph]) -> dict[str, np.ndarray]:
    """Return the weights after training on some graphs, one after the other."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    norm, drop = nn.BatchNorm1d(HIDDEN), nn.Dropout(DROPOUT)
    lins = nn.ModuleList([nn.Linear(CHANNELS * (CHANNELS - 1), HIDDEN), nn.Linear(HIDDEN, FUSED)])
    model = nn.ModuleDict({"lins": lins, "bns": nn.ModuleList([norm])})
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=DECAY)
    for step in range(STEPS):
        scores, target = graphs[step % len(graphs)].batch(random)
        logits = lins[1](drop(norm(lins[0](relations(scores)).relu())))
        loss = F.cross_entropy(fused(scores, logits)[0], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return folded(model.state_dict())


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on all graphs but one, for each, and on all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="file to write")
    out = parser.parse_args(arguments).out
    graphs = {name: TrainingGraph(name) for name in EMBEDDED}
    stored: dict[str, Any] = {}
    for left_out in (*graphs, EVERY):
        weights = train([graph for name, graph in graphs.items() if name != left_out])
        stored |= {f"{left_out}/{name}": value for name, value in weights.items()}
        print(f"trained without {left_out}" if left_out != EVERY else "trained on all graphs")
    np.savez_compressed(out, **stored)


if __name__ == "__main__":
    main()
