"""What if other heads taught the encoder in sessions, too, as posterior means does?

    python benchmarks/taught_heads.py --dataset debian --dataset metamath [--space FILE] [--method sgc-lda]

Each method in closed form with the settings chosen for it in a space (the larger search), as it is, and with
the encoder's steps of posterior means: twenty a session, in two halves, by a cosine classifier whose rows are
the class means. They learn the labels and those nodes that the method itself, self-trained, adds to them
(«guesses»), or, for half of each class's weight, what it answers for all other nodes, as ours («answers»).
What learns stands last among the features, so that random projections meet them in another order.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from hagmeta import datasets
from hagmeta.common.files.home import home
from hagmeta.config.run_config import RunConfig
from hagmeta.config.settings import SelfTrainingSettings
from hagmeta.engine.engine import SessionEngine
from hagmeta.layers.head import COSINE_SCALE
from hagmeta.methods import METHODS
from hagmeta.methods.base import Method, SessionLearning, Shared, Task
from hagmeta.methods.closed_form.base import labels_of
from hagmeta.methods.posterior_means import TEMPERATURE, PosteriorMeans, smoothed_shares, taught_shares
from hagmeta.sparse.graph import View
from hagmeta.testing import records_of

HEADS = ("sgc-ncm", "sgc-ridge", "sgc-lda", "ranpac")
SHARPNESS = {"SgcNcm": COSINE_SCALE, "SgcLda": TEMPERATURE}  # of logits; the others' are shares already
HERE = Path(__file__).parent


class Taught:
    """What makes the encoder of a method in closed form learn in sessions."""

    session_learning = SessionLearning.PSEUDO_LABELS
    freezes_encoder = False
    session_loss = PosteriorMeans.session_loss
    answers = False

    def features_of(self: Any, shared: Shared, view: View) -> Tensor:
        features: Tensor = self.all_features(shared.graph, view)  # never the cached ones: steps change them
        return features

    def before_steps(self: Any, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        labels = labels_of(shared, view, task)
        shares = smoothed_shares(labels)
        if self.answers:
            free = view.visible.unsqueeze(-1) * (1 - labels.amax(-1, keepdim=True))
            shares = taught_shares(shares, self._shares(shared, view, task) * free)
        return shares, shares.mT @ self._scaled(self.encoder(shared.graph, view, None).all())

    def _shares(self: Any, shared: Shared, view: View, task: Task) -> Tensor:
        """How far the method takes each node for one of a class (nodes, classes)."""
        nodes = torch.arange(shared.graph.num_nodes, device=view.visible.device)
        (logits,) = self.logits(shared, view, (task._replace(query=nodes),))
        sharpness = SHARPNESS.get(type(self).__name__)
        if sharpness:
            return (sharpness * logits).softmax(-1)
        return logits.relu() / logits.relu().sum(-1, keepdim=True).clamp(min=1e-6)


def taught(method: type[Method], answers: bool) -> type[Method]:
    own = {"own_settings": method.own_settings, "answers": answers}
    return type(method.__name__, (Taught, method), own)


def only_with_guesses() -> None:
    """Let taught methods train themselves, and of a session's two rounds of steps leave out the first.

    It would have no guesses to learn from yet.
    """
    SelfTrainingSettings.unused_by = classmethod(lambda cls, method: "")  # type: ignore[method-assign, assignment]
    learn = SessionEngine._learn

    def later(self: Any, known: Any, streams: Any, session: int) -> None:
        if streams[0].guessed is not None or not self.context.settings.self_training:
            learn(self, known, streams, session)

    SessionEngine._learn = later  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", action="append", required=True)
    parser.add_argument("--space", type=Path, default=HERE.parent / "docs/older/comparison_tuned_48.yaml")
    parser.add_argument("--method", action="append", choices=HEADS)
    parser.add_argument("--json", type=Path, help="write what was measured, a line a row")
    options = parser.parse_args()
    space = yaml.safe_load(options.space.read_text())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    only_with_guesses()
    for name in options.dataset:
        dataset = datasets.load(name, home())
        for method in options.method or HEADS:
            (case,) = [c for c in space["cases"] if c["method"] == method and c["dataset"] == name]
            config = RunConfig.of(**space.get("fixed", {}) | case)
            found = {}
            plain = METHODS[method]
            arms = {"as it is": plain, "guesses": taught(plain, False), "answers": taught(plain, True)}
            for arm, kind in arms.items():
                METHODS[method] = kind
                records = records_of(config, space["seeds"], dataset, device, cache=home() / "pretrained")
                trained = {record["config"]["self_training"] for record in records}
                assert trained == {case.get("self_training", 0)}, "all learn from as many nodes"
                found[arm] = np.array([record["macro_accuracy"] for record in records])
                if options.json:
                    line = {"dataset": name, "method": method, "arm": arm, "curves": found[arm].tolist()}
                    with options.json.open("a") as file:
                        file.write(json.dumps(line) + "\n")
            METHODS[method] = plain
            values = (f"{arm} {100 * c[:, -1].mean():.1f}, {100 * c.mean():.1f}" for arm, c in found.items())
            print(f"{name} {method}, last session and average: {'; '.join(values)}", flush=True)


if __name__ == "__main__":
    main()
