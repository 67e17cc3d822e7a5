"""What if other heads taught the encoder in sessions, too, as posterior means does?

    python benchmarks/taught_heads.py --dataset debian --dataset metamath [--space FILE] [--method sgc-lda]

Each method in closed form with the settings chosen for it in a space (comparison_tuned), as it is, and with
the encoder's steps of posterior means: twenty a session, in two halves, by a cosine classifier whose rows are
the class means. They learn the labels and those nodes that the method itself, self-trained, adds to them;
with --answers, for half of each class's weight, what the method answers for all other nodes, too, as ours.
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
from hagmeta.common.home import home
from hagmeta.config import RunConfig
from hagmeta.methods import METHODS
from hagmeta.methods.base import Method, SessionLearning, Shared, Task
from hagmeta.methods.posterior_means import TAUGHT, TEMPERATURE, PosteriorMeans, labels_of
from hagmeta.nn.head import COSINE_SCALE, LABEL_SMOOTHING
from hagmeta.phases import sessions
from hagmeta.pipeline import run
from hagmeta.sparse.graph import View

HEADS = ("sgc-ncm", "sgc-ridge", "sgc-lda", "ranpac")
SHARPNESS = {"SgcNcm": COSINE_SCALE, "SgcLda": TEMPERATURE}  # of logits; the others' are shares already
HERE = Path(__file__).parent


class Taught:
    """What makes the encoder of a method in closed form learn in sessions."""

    session_learning = SessionLearning.ANSWERS
    freezes_encoder = False
    propagates_once = False
    session_loss = PosteriorMeans.session_loss
    answers = False

    def recall(self: Any, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        labels = labels_of(shared, view, task)
        shares = labels / labels.sum(0)
        shares = (1 - LABEL_SMOOTHING) * shares + LABEL_SMOOTHING * shares.mean(-1, keepdim=True)
        if self.answers:
            free = view.visible.unsqueeze(-1) * (1 - labels.amax(-1, keepdim=True))
            found = self._shares(shared, view, task) * free
            shares = (1 - TAUGHT) * shares + TAUGHT * found / found.sum(0).clamp(min=1)
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
    """Of a session's two rounds of steps, the first has no guesses to learn from yet: leave it out."""
    learn = sessions._AnsweringAfterLearning._learn

    def later(self: Any, pack: Any, knowledge: Any, streams: Any, session: int) -> None:
        if streams[0].guessed is not None or not self.context.settings.self_training:
            learn(self, pack, knowledge, streams, session)

    sessions._AnsweringAfterLearning._learn = later  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", action="append", required=True)
    parser.add_argument("--space", type=Path, default=HERE.parent / "search_spaces/comparison_tuned.yaml")
    parser.add_argument("--method", action="append", choices=HEADS)
    parser.add_argument("--answers", action="store_true", help="teach what it answers for all nodes, too")
    parser.add_argument("--json", type=Path, help="write what was measured, a line a row")
    options = parser.parse_args()
    space = yaml.safe_load(options.space.read_text())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    only_with_guesses()
    for name in options.dataset:
        dataset = datasets.load(name, home())
        for method in options.method or HEADS:
            (case,) = [c for c in space["cases"] if c["method"] == method and c["dataset"] == name]
            config = RunConfig(**space.get("fixed", {}) | case)
            rows = []
            for teaches in (False, True):
                plain = METHODS[method]
                METHODS[method] = taught(plain, options.answers) if teaches else plain
                records = run(
                    config, space["seeds"], dataset=dataset, device=device, cache=home() / "pretrained"
                )
                METHODS[method] = plain
                rows.append(np.array([record["macro_accuracy"] for record in records]))
                if options.json:
                    line = {"dataset": name, "method": method, "taught": teaches, "curves": rows[-1].tolist()}
                    with options.json.open("a") as file:
                        file.write(json.dumps(line) + "\n")
            before, after = (100 * np.stack([r[:, -1], r.mean(1)]).mean(1) for r in rows)
            print(
                f"{name:12} {method:10} last {before[0]:.1f}, taught {after[0]:.1f};"
                f" average {before[1]:.1f}, taught {after[1]:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
