"""Six steps of the authors' code, reproduced number by number (see README.md beside this file).

Our meta-training and sessions run under `released` on the authors' graph, from their parameters, with their
draws, and go on from their own state: four steps of meta-training, two sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.options import RunOptions, mode_of
from hagmeta.engine.runtime import Runtime
from hagmeta.engine.sessions import evaluate_streams
from hagmeta.engine.training import meta_training
from hagmeta.methods import Sizes
from hagmeta.methods.base import Shared, Task
from hagmeta.methods.paper.hag_meta import NLA_OF_AUTHORS, TLA_OF_AUTHORS, HagMeta
from hagmeta.packs.pack import Pack, Step
from hagmeta.packs.plain import PlainPack
from hagmeta.packs.randomness import part
from hagmeta.scenarios.episodes import PseudoStream
from hagmeta.scenarios.scenario import NEVER, TRAIN, Scenario, Split, Stream
from hagmeta.sparse.graph import Graph, View
from hagmeta.sparse.plain import PlainGraph

with np.load(Path(__file__).with_name("steps.npz")) as steps:
    THEIRS: dict[str, np.ndarray] = dict(steps)
CPU = torch.device("cpu")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = [CPU, pytest.param(torch.device("cuda"), marks=on_gpu)]
STEPS, BASE, WAYS, SHOTS = 6, 6, 2, 3
PARTS = {
    "encoder.gc1": "encoder.first",
    "encoder.gc2": "encoder.second",
    "scorer.gc1": "node_attention.convolutions.first",
    "scorer.gc2": "node_attention.convolutions.second",
    "scorer.fc3": "node_attention.last",
    "attention.fc1": "task_attention.first",
    "attention.fc2": "task_attention.third",
    "attention.fc3": "task_attention.shared",
}
NAMES = {f"{part}.{kind}": f"{ours}.{kind}" for part, ours in PARTS.items() for kind in ("weight", "bias")}
TOLERANCES = {  # absolute, and relative to the authors' number
    "log_probabilities": (2e-6, 1e-6),
    "class_weights": (2e-7, 2e-6),
    "loss": (2e-6, 1e-6),
    "gradient": (2e-6, 1e-5),
    "after": (1e-5, 1e-5),
}
TOLD = ("log_probabilities", "class_weights", "loss")
Numbers = dict[tuple[str, str], np.ndarray]  # by quantity, and by parameter where it has one for each
SETTINGS = RunConfig.of(
    dataset="synthetic:nodes=192,edges=600,features=14,classes=16",  # the authors' has no name
    protocol="released",
    classes=(BASE, 6, 4),
    n_way=WAYS,
    k_shot=SHOTS,
    query_shot=2,
    hidden=10,
    embedding=5,
    dropout=0.0,
    learning_rate=0.005,
    weight_decay=0.0005,
    episodes=4,
)


def their_dataset() -> Dataset:
    edges = np.argwhere(np.triu(THEIRS["adjacency"]))
    return Dataset("steps", edges, THEIRS["labels"], THEIRS["features"], tuple(map(str, range(16))))


def their_scenario() -> Scenario:
    labels = THEIRS["labels"]
    arriving = np.stack([THEIRS[f"step{number}/new_classes"] for number in (4, 5)])
    known = THEIRS["step4/known_classes"][:-WAYS]  # the new ones are among them by then
    arrival = np.zeros(len(labels), dtype=np.int16)
    for session, classes in enumerate(arriving, start=1):
        arrival[np.isin(labels, classes)] = session
    test = Stream(
        (known, *arriving),
        (np.empty((0, SHOTS), dtype=np.int64), *(THEIRS[f"step{number}/support"] for number in (4, 5))),
        (np.arange(0), their_queries(4), their_queries(5)),
        arrival,
        labelled_from=arrival,
    )
    later = np.where(arrival > 0, NEVER, 0)
    training = replace(test, arriving=(known[:BASE], *arriving), arrival=later, labelled_from=later)
    role = np.full(len(labels), TRAIN)
    split = Split(known[:BASE], known[BASE:], arriving.ravel(), role)
    return Scenario(0, labels, 16, split, known[BASE:], training, test)


def their_queries(number: int) -> np.ndarray:
    return np.concatenate([THEIRS[f"step{number}/query_{which}"] for which in ("known", "new")])


def their_pseudo_stream(numbers: list[int]) -> PseudoStream:
    """The pseudo-stream of which these steps are the sessions, filled up where theirs was cut short."""
    order, support = np.arange(6, 12), np.zeros((6, SHOTS), dtype=np.int64)
    query = np.zeros((3, BASE + 6, 2), dtype=np.int64)
    for session, number in enumerate(numbers):
        rows = slice(session * WAYS, (session + 1) * WAYS)
        order[rows] = THEIRS[f"step{number}/new_classes"]
        support[rows] = THEIRS[f"step{number}/support"]
        query[session, : BASE + rows.stop] = their_queries(number).reshape(-1, 2)
    return PseudoStream(order, support, query)


class TheirSampler:
    """Draws what was drawn there, for every seed of a pack."""

    sessions = 3

    def __init__(self, *_: Any) -> None:
        self.streams = iter([their_pseudo_stream([0, 1, 2]), their_pseudo_stream([3])])

    def draw(self) -> PseudoStream:
        return next(self.streams)


class Telling(HagMeta):
    """HAG-Meta, which tells what its loss was made of."""

    def told(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits, prototypes = self._answer(shared, self.encode(shared, view, key), task)
        assert self.task_attention is not None
        return logits.log_softmax(-1), self.task_attention(prototypes, shared.task_sizes, part(key, 2))


def on_host(value: Tensor) -> np.ndarray:
    array: np.ndarray = value.detach().cpu().numpy().copy()
    return array


class Watched(Pack):
    """Keeps what every step tells, and what it leaves."""

    def __init__(self, modules: Sequence[nn.Module], device: torch.device) -> None:
        super().__init__(modules, device)
        self.steps: list[list[Numbers]] = []  # by step, and by seed

    def run(self, step: Step, shared: tuple[Any, ...], *seedwise: Any) -> Any:
        if step not in ("loss", "session_loss"):
            return super().run(step, shared, *seedwise)
        self.look()
        with torch.no_grad():
            told = super().run("told", shared, *seedwise)
        result = super().run(step, shared, *seedwise)
        names = [(what, "") for what in TOLD]
        by_seed = zip(*told, result[0], strict=True)
        self.steps.append([dict(zip(names, map(on_host, values), strict=True)) for values in by_seed])
        return result

    def look(self) -> None:
        """At what the last step has left."""
        for seed, numbers in enumerate(self.steps[-1] if self.steps else []):
            for theirs, ours in NAMES.items():
                value = self.parameters[ours]
                assert value.grad is not None
                numbers["after", theirs] = on_host(self._of(value, seed))
                numbers["gradient", theirs] = on_host(self._of(value.grad, seed))

    def _of(self, stacked: Tensor, seed: int) -> Tensor:
        return stacked.select(-2, seed)


class WatchedPlain(Watched, PlainPack):
    """The same in plain mode."""

    def _of(self, stacked: Tensor, seed: int) -> Tensor:
        return stacked


@pytest.fixture(autouse=True)
def their_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meta_training, "EpisodeSampler", TheirSampler)


def our_steps(
    seeds: int = 1,
    plain: bool = False,
    device: torch.device = CPU,
    normalisation: str = "whole",
    **changes: Any,
) -> list[list[Numbers]]:
    """What our six steps tell, of some seeds that all do the same: under `released`, but for ``changes``."""
    settings = replace(resolve(SETTINGS), **changes)
    assert settings.normalisation == "whole"
    graph = (PlainGraph if plain else Graph)(their_dataset(), device, normalisation)
    options = RunOptions(device=device, mode=mode_of(eager=True, plain=plain))
    context = Context(graph, [their_scenario()] * seeds, settings, Runtime(options, settings))
    methods = [Telling(settings, Sizes(14, BASE, WAYS, 16), 0) for _ in range(seeds)]
    for method in methods:
        method.load_state_dict(
            {ours: torch.from_numpy(THEIRS[f"before/{theirs}"]) for theirs, ours in NAMES.items()}
        )
    pack = (WatchedPlain if plain else Watched)(methods, device)
    trained = meta_training.meta_train(context, pack)
    evaluate_streams(context, pack, [scenario.test for scenario in context.scenarios], "test", trained)
    pack.look()
    return pack.steps


def their_number(step: int, what: str, name: str) -> np.ndarray:
    if what == "loss":
        total: np.ndarray = THEIRS[f"step{step}/loss_terms"].sum()
        return total
    return THEIRS[f"step{step}/{what}/{name}" if name else f"step{step}/{what}"]


def excesses(steps: list[list[Numbers]]) -> dict[str, float]:
    """Of every quantity the largest error, in tolerances; numbers that have no counterpart do not count."""
    assert len(steps) == STEPS
    worst = dict.fromkeys(TOLERANCES, 0.0)
    for number, seeds in enumerate(steps):
        for numbers in seeds:
            assert len(numbers) == len(TOLD) + 2 * len(NAMES)
            for (what, name), ours in numbers.items():
                theirs = their_number(number, what, name)
                absolute, relative = TOLERANCES[what]
                if ours.shape == theirs.shape:
                    error = np.abs(ours - theirs) / (absolute + relative * np.abs(theirs))
                    worst[what] = max(worst[what], float(error.max()))
    return worst


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("seeds", "plain"), [(1, False), (3, False), (1, True)])
def test_our_steps_are_the_authors(seeds: int, plain: bool, device: torch.device) -> None:
    steps = our_steps(seeds, plain, device)
    for number, each in enumerate(steps):
        for numbers in each:
            for (what, name), ours in numbers.items():
                assert ours.shape == their_number(number, what, name).shape, (number, what, name)
    assert max(excesses(steps).values()) < 1, excesses(steps)


SLIPS: dict[str, tuple[Any, str, Any]] = {
    "log(degree + 1)": (NLA_OF_AUTHORS, "degree", "visible"),
    "prototypes of earlier tasks transposed": (TLA_OF_AUTHORS, "earlier", "transposed"),
    "TLA's gradients set to zero": (HagMeta, "sums_gradients", lambda settings: ()),
    "one prototype a class in sessions": (HagMeta, "second_prototypes", False),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_single_slip_is_seen(slip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, value = SLIPS[slip]
    (monkeypatch.setitem if isinstance(place, dict) else monkeypatch.setattr)(place, name, value)
    assert max(excesses(our_steps()).values()) > 10


@pytest.mark.parametrize("change", [{"normalisation": "visible"}, {"nla_weights": "softmax"}], ids=str)
def test_another_normalisation_is_seen(change: dict[str, Any]) -> None:
    assert max(excesses(our_steps(**change)).values()) > 10


def test_one_more_neighbour_in_the_logarithm_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Graph, "log_degree", property(lambda graph: graph.degree.log()))
    assert max(excesses(our_steps()).values()) > 10


def test_what_a_step_sees_is_what_the_authors_mask() -> None:
    scenario, graph = their_scenario(), Graph(their_dataset(), CPU, "whole")
    seen = {number: scenario.validation.arrived(0) for number in range(4)}
    seen |= {4: scenario.test.arrived(1), 5: scenario.test.arrived(2)}
    for number, visible in seen.items():
        (scale,) = graph.view(visible[None]).scale.numpy()
        masked = scale[:, None] * graph.loops.toarray() * scale
        np.testing.assert_allclose(masked, THEIRS[f"step{number}/masked_adjacency"], rtol=1e-6, atol=0)
