"""When a node became visible tells which classes it may be of, and no method can use it.

What is proven, for every method, under both protocols, while it learns in a session and while it answers:

- What a method is given in session t depends on arrival through one thing, the set of nodes that are visible
  in t. Before each session the times of arrival up to it are dealt anew among those nodes, which leaves the
  set as it is: every argument of every step, the matrices behind class means included, and every parameter
  and answer, stay equal to the bit. All that a method is given for every node is that set of t, or follows
  from it.
- A method takes nothing but its parameters from one session to the next. With `rehearsal: none` it also takes
  what it keeps of earlier classes. In the run whose arrival is dealt anew, the method itself is made anew
  before each session, too, and only handed these; and neither its object nor its classes and their files hold
  anything after the sessions that they did not before.
- Nothing that is kept has a row for every node, and what is kept of nodes (memory, batches) is labelled.

What is not: no test can read what a parameter means, so a method that wrote the times of some nodes into the
digits of its weights would pass. The books of the loops (the answers of training's last pseudo-stream, what
was captured) hold older views. No step is given them, which the first point shows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor, nn

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine import sessions
from hagmeta.engine.context import Context
from hagmeta.engine.engine import Engine
from hagmeta.engine.known.batches import HeldOutBatches, ReplayBatches
from hagmeta.engine.run import prepare, pretrain
from hagmeta.engine.training.meta_training import Trained, meta_train
from hagmeta.methods import METHODS, Method, Shared, Task, make_method
from hagmeta.methods.paper.proto import ProtoGcn
from hagmeta.packs.capture import Capture
from hagmeta.packs.pack import Pack
from hagmeta.scenarios import PROTOCOLS
from hagmeta.scenarios.scenario import Scenario, Stream
from hagmeta.sparse.graph import Graph, View
from tests.hagmeta.conftest import watched
from tests.hagmeta.kinds import kinds_with

CPU = torch.device("cpu")
SEEDS = [0, 5]
Tiny = Callable[..., RunConfig]
Leaf = tuple[str, Any]  # where it is, and what it is
NOT_KEPT = (Graph, Context, Stream, Scenario, Trained, Capture)  # the loops': see above
CODE = (type, FunctionType, ModuleType, classmethod, staticmethod, property)


def leaves(value: Any, path: str = "", met: frozenset[int] = frozenset()) -> Iterator[Leaf]:
    """Everything in an object, as arrays and plain values, without what the loops keep for themselves."""
    if id(value) in met or isinstance(value, (*NOT_KEPT, *CODE)):
        return
    met |= {id(value)}
    if isinstance(value, Tensor):
        yield path, value.detach().cpu().numpy().copy()
    elif isinstance(value, np.ndarray):
        yield path, value.copy()
    elif scipy.sparse.issparse(value):
        yield f"{path} (matrix)", value.toarray()
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, f"{path}[{key if isinstance(key, str) else '…'}]", met)
    elif isinstance(value, list | tuple | set | frozenset):
        for number, part in enumerate(value):
            yield from leaves(part, f"{path}[{number}]", met)
    elif hasattr(value, "__dict__"):
        for name, part in vars(value).items():
            yield from leaves(part, f"{path}.{name}", met)
    else:
        yield path, value


def same(one: list[Leaf], other: list[Leaf]) -> bool:
    """Whether two objects hold the same, to the bit."""
    return [path for path, _ in one] == [path for path, _ in other] and all(
        equal(a, b) for (_, a), (_, b) in zip(one, other, strict=True)
    )


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and bool(one == other)


@dataclass
class Life:
    """What reached a method in its sessions, and what was left afterwards."""

    context: Context
    pack: Pack
    streams: list[Stream]
    steps: list[tuple[int, str, list[Leaf]]] = field(default_factory=list)  # session, step, what it was given
    given: list[tuple[int, tuple[Any, ...], tuple[Any, ...]]] = field(default_factory=list)  # as it was given
    made: dict[str, list[tuple[int, list[Leaf]]]] = field(
        default_factory=lambda: {"before_steps": [], "session_statistics": []}
    )
    before: list[dict[str, int]] = field(default_factory=list)  # for each given: how much was made by then
    answers: list[list[np.ndarray]] = field(default_factory=list)
    engine: Any = None
    held: tuple[list[Leaf], list[Leaf]] = ([], [])  # by the method's object and code: before and after

    def same_steps(self, other: Life) -> bool:
        names = [[step[:2] for step in life.steps] for life in (self, other)]
        pairs = zip(self.steps, other.steps, strict=True)
        return names[0] == names[1] and all(same(one[2], two[2]) for one, two in pairs)

    def same_answers(self, other: Life) -> bool:
        return same(list(leaves(self.answers)), list(leaves(other.answers)))


def lived(
    config: RunConfig,
    dataset: Dataset,
    monkeypatch: pytest.MonkeyPatch,
    *,
    anew: bool,
    purpose: str = "test",
) -> Life:
    """Live through the sessions; ``anew``: with arrivals dealt, and methods made, anew before each."""
    context = prepare(config, SEEDS, dataset, CPU)
    pack = pretrain(context)
    trained = meta_train(context, pack)
    streams = [
        getattr(scenario, "test" if purpose == "test" else "validation") for scenario in context.scenarios
    ]
    life, rng, session = Life(context, pack, streams), np.random.default_rng(0), 0
    run, begin = Pack.run, Engine.__init__

    def recorded(self: Pack, step: str, shared: tuple[Any, ...], *seedwise: Any) -> Any:
        given = [
            *leaves(shared, "shared"),
            *leaves(seedwise, "given"),
            *leaves(self.parameters, "parameters"),
        ]
        life.steps.append((session, step, given))
        life.given.append((session, shared, seedwise))
        life.before.append({name: len(made) for name, made in life.made.items()})
        made = run(self, step, shared, *seedwise)
        if step in life.made:
            life.made[step].append((session, list(leaves(tuple(made)))))
        return made

    def begun(self: Any, *arguments: Any) -> None:
        begin(self, *arguments)
        life.engine = self

    def next_session(phase: str, done: int, total: int, values: dict[str, float]) -> None:
        nonlocal session
        session = done + 1
        if not anew:
            return
        for stream in streams:
            there = np.flatnonzero(stream.arrival <= session)
            dealt = rng.permutation(stream.arrival[there])
            assert done == total or (dealt != stream.arrival[there]).any()
            stream.arrival[there] = dealt
        pack.template = fresh_method(context)

    before = list(held_by(pack.template))
    with monkeypatch.context() as patch:
        patch.setattr(Pack, "run", recorded)
        patch.setattr(Engine, "__init__", begun)
        evaluators = sessions.evaluate_streams(
            watched(context, next_session), pack, streams, purpose, trained
        )
    life.answers = [evaluator.answers for evaluator in evaluators]
    life.held = before, list(held_by(pack.template))
    return life


def fresh_method(context: Context) -> Method:
    return make_method(context.settings, context.known.views.sizes, context.scenarios[0].seed)


def held_by(method: nn.Module) -> Iterator[Leaf]:
    """What a method's object, its classes and the files that they stand in hold."""
    yield from leaves(vars(method), "object")
    ours = [kind for kind in type(method).__mro__ if issubclass(kind, Method)]
    for kind in ours:
        attributes = {name: value for name, value in vars(kind).items() if not name.startswith("_abc")}
        yield from leaves(attributes, kind.__name__)
    for name in {kind.__module__ for kind in ours if kind.__module__ != __name__}:
        values = {key: value for key, value in vars(sys.modules[name]).items() if not key.startswith("__")}
        yield from leaves(values, name)


def kept(life: Life) -> Iterator[Leaf]:
    """What is there in the next session, too."""
    yield from leaves(life.pack, "pack")
    yield from leaves(life.engine, "engine", frozenset({id(life.pack)}))


def has_a_row_a_node(value: Any, nodes: int) -> bool:
    """Of a prime number of nodes."""
    return isinstance(value, np.ndarray) and value.size > 0 and value.size % nodes == 0


WAYS: dict[str, dict[str, Any]] = {protocol: {"protocol": protocol} for protocol in PROTOCOLS}
del WAYS["growing"]  # it has a test of its own, of fewer methods: only the times are others than under strict
WAYS["without old labels"] = {"rehearsal": "none"}
WAYS["re-weighted"] = {"smoothing": 0.5, "logit_adjustment": 1.0, "prior": "estimated"}


@pytest.mark.parametrize(("method", "way"), kinds_with(WAYS, fully=()))
def test_a_method_cannot_tell_when_a_node_arrived(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, method: str, way: str
) -> None:
    check_arrival_is_not_used(tiny(method=method, **WAYS[way]), tiny_graph, monkeypatch)


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=() if name == "icarl" else pytest.mark.slow) for name in METHODS]
)
def test_nor_where_nodes_arrive_in_all_sessions(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    check_arrival_is_not_used(tiny(method=method, protocol="growing"), tiny_graph, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    "way", [{"rehearsal": "1"}, pytest.param({"visibility": "whole"}, marks=pytest.mark.slow)], ids=str
)
def test_nor_by_exemplars_or_by_the_encoder_of_session_0(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, way: dict[str, str]
) -> None:
    check_arrival_is_not_used(tiny(method="posterior-means", **way), tiny_graph, monkeypatch)


def check_arrival_is_not_used(
    config: RunConfig, tiny_graph: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = lived(config, tiny_graph, monkeypatch, anew=False)
    other = lived(config, tiny_graph, monkeypatch, anew=True)
    assert {session for session, _, _ in life.steps} >= {1, 2}
    assert life.same_steps(other)
    assert life.same_answers(other)
    assert same(*life.held), "a method keeps nothing but its parameters"
    assert knows_what_is_visible_now_alone(life)
    assert not [path for path, value in kept(life) if has_a_row_a_node(value, tiny_graph.num_nodes)]
    for seed in range(len(SEEDS)):
        assert np.isin(nodes_kept(life, seed), labelled_nodes(life, seed)).all()


@pytest.mark.parametrize("method", ["proto-gcn", pytest.param("sgc-ridge", marks=pytest.mark.slow)])
def test_nor_by_what_it_labels_itself(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    config = tiny(method=method, self_training=3)
    life, other = (lived(config, tiny_graph, monkeypatch, anew=anew) for anew in (False, True))
    assert life.same_steps(other) and life.same_answers(other)
    assert knows_what_is_visible_now_alone(life)


def knows_what_is_visible_now_alone(life: Life) -> bool:
    """Whether all that a step has for every node is its session's view, or averages over labelled nodes.

    Or what the method made of that view before: what no step changes, and what it returned before its last
    steps. Every node may be asked for, in their order.
    """
    context, nodes, found = life.context, life.context.graph.num_nodes, True
    pairs = list(zip(context.scenarios, life.streams, strict=True))
    for (session, shared, seedwise), before in zip(life.given, life.before, strict=True):
        now = np.stack([context.protocol.visible(*pair, session) for pair in pairs])
        for part in (each for some in seedwise for each in (some if type(some) is tuple else (some,))):
            if isinstance(part, View):
                view = context.known.views.view(context.scenarios, list(now))
                if part.fixed_features:
                    view = view._replace(
                        fixed_features=(life.pack.run("fixed_features", (context.graph,), view),)
                    )
                found &= same(list(leaves(part._replace(session_statistics=()))), list(leaves(view)))
                found &= not part.session_statistics or is_the_last_made(
                    life, "session_statistics", before, session, part.session_statistics
                )
            elif isinstance(part, Task):
                every = part.query.shape[-1] == nodes and bool((part.query == torch.arange(nodes)).all())
                asked = leaves(
                    part._replace(before_steps=(), query=part.query[:, :0] if every else part.query)
                )
                found &= not any(has_a_row_a_node(value, nodes) for _, value in asked)
                found &= not part.before_steps or is_the_last_made(
                    life, "before_steps", before, session, part.before_steps
                )
            else:
                found &= not any(has_a_row_a_node(value, nodes) for _, value in leaves(part))
        for means in (part.class_means for part in shared if isinstance(part, Shared)):
            found &= np.array_equal(means._visible, now)
            columns = [matrix.indices for matrix in means._members]
            found &= all(np.isin(c, labelled_nodes(life, seed)).all() for seed, c in enumerate(columns))
    return found


def is_the_last_made(life: Life, step: str, before: dict[str, int], session: int, given: Any) -> bool:
    when, made = life.made[step][before[step] - 1]
    return when == session and same(list(leaves(tuple(given))), made)


def labelled_nodes(life: Life, seed: int) -> np.ndarray:
    """Whose labels have been shown by the last session; to an oracle, or where all leaks, many more."""
    context, stream, scenario = life.context, life.streams[seed], life.context.scenarios[seed]
    nodes = [context.protocol.labelled(scenario, stream.known), np.concatenate(stream.support).ravel()]
    if context.known.oracle:
        nodes.append(scenario.train_nodes_met(stream, stream.sessions))
    if context.protocol.leaks:
        nodes.append(scenario.all_nodes_of(stream.met(stream.sessions)))
    return np.concatenate(nodes)


def nodes_kept(life: Life, seed: int) -> np.ndarray:
    """The nodes that memory and batches hold at the end."""
    memory, batches = (getattr(life.engine, name, None) for name in ("memory", "batches"))
    nodes = [np.empty(0, dtype=np.int64)]
    if memory is not None:
        nodes.append(memory.nodes()[seed])
    if isinstance(batches, ReplayBatches):
        nodes += [batches.batch.query[seed].numpy(), batches.batch.support[seed].numpy().ravel()]
    if isinstance(batches, HeldOutBatches) and batches.pools:
        pools = batches.pools[seed]
        nodes += [row[:size] for row, size in zip(pools.nodes, pools.sizes, strict=True)]
    return np.concatenate(nodes)


def test_memory_and_lessons_do_keep_nodes(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The check of them looks at something, and finds an unlabelled node among the rest.
    for method in ("icarl", "hag-meta", "joint"):
        life = lived(tiny(method=method), tiny_graph, monkeypatch, anew=False)
        assert len(nodes_kept(life, 0)) >= 12
    life = lived(tiny(method="icarl"), tiny_graph, monkeypatch, anew=False)
    life.engine.memory.kept[0].append(life.streams[0].queries[2][:1, None])
    assert not np.isin(nodes_kept(life, 0), labelled_nodes(life, 0)).all()


def test_nor_in_a_validation_stream_of_held_out_classes(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(n_way=1, classes=(2, 3, 4), val_classes=2)
    lives = [
        lived(config, tiny_graph, monkeypatch, anew=anew, purpose="validation") for anew in (False, True)
    ]
    assert lives[0].same_steps(lives[1]) and lives[0].same_answers(lives[1])


def unpacked(visible: Tensor) -> Tensor:
    """The masks of all seeds, from within the pack: what nobody does by mistake."""
    return torch._C._functorch.get_unwrapped(visible)


class Cheat(ProtoGcn):
    """Tells new nodes by what was not visible in the session before: they are of the last classes."""

    previous: Any = None

    def keep(self, visible: Tensor) -> None:
        self.previous = visible

    def logits(self, shared: Shared, view: View, tasks: tuple[Task, ...]) -> tuple[Tensor, ...]:
        before, seen = self.previous, unpacked(view.visible)
        answers = super().logits(shared, view, tasks)
        if before is not None and seen.shape == before.shape and bool((seen > before).any()):
            is_new = ((seen - before).amax(0) > 0)[tasks[0].query]
            is_last = torch.arange(answers[0].shape[-1]) >= answers[0].shape[-1] - shared.task_sizes[-1]
            answers = (answers[0] + 1e6 * (is_new.unsqueeze(-1) & is_last),)
        self.keep(seen)
        return answers


@pytest.fixture
def cheat(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Method]], str]:
    def register(method: type[Method]) -> str:
        monkeypatch.setitem(METHODS, "cheat", method)
        return "cheat"

    return register


@pytest.mark.slow
def test_a_method_that_remembers_who_was_visible_is_caught(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, cheat: Callable[[type[Method]], str]
) -> None:
    config = tiny(method=cheat(Cheat))
    life, other = (lived(config, tiny_graph, monkeypatch, anew=anew) for anew in (False, True))
    # It gains by it, which a method without its past cannot; and its object holds what it kept.
    assert life.same_steps(other) and not life.same_answers(other)
    assert not same(*life.held)
    assert [path for path, value in kept(life) if has_a_row_a_node(value, 401)] == ["pack.template.previous"]
    honest = lived(tiny(method="proto-gcn"), tiny_graph, monkeypatch, anew=False)
    assert honest.same_answers(other)
