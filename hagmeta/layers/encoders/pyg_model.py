"""Use any PyTorch Geometric model with `forward(x, edge_index)` as an encoder: `pyg:package.module:Class`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from hagmeta.common.errors import UserError, shown
from hagmeta.layers.encoders.base import Embedding, Encoder, EveryNode, LayerSettings
from hagmeta.sparse.graph import Graph, View

LAYERS = 2  # for models with `num_layers`, as in the other encoders
REQUIRED = ("in_channels", "out_channels")
TRIAL_NODES, TRIAL_INPUTS, TRIAL_HIDDEN, TRIAL_OUTPUTS = 5, 3, 48, 16  # most numbers of heads divide 48


class PygEncoder(Encoder):
    """Run a PyG model on the subgraph of the visible nodes.

    The constructor's arguments are matched by name. It must take ``in_channels`` and ``out_channels``. It
    gets ``hidden_channels``, ``num_layers`` (2) and ``dropout`` if it has parameters of these names. All
    others need defaults. PyG's own models fit, and so do its convolutions.

    The model never sees invisible nodes. It gets the visible ones, renumbered, and the edges among them in
    both directions, without self-loops. Under every protocol, its degrees, norms and pooling are those of the
    visible graph. Seeds run one by one, in plain mode. The inputs ``x`` are dense: nodes x inputs x 4 bytes,
    which is 1 GB for the raw features of WordNet. `inputs: svd` makes 128 columns of them.

    Dropout draws from torch's generator, seeded by the step's key. Runs repeat on one device, but masks
    differ between a CPU and a GPU. Models whose buffers change in training (running statistics of BatchNorm)
    are refused: each phase restores its best parameters, and buffers are not among them.
    """

    packs = False
    model_class: ClassVar[type[nn.Module]]

    def __init__(self, num_features: int, settings: LayerSettings, *, twice: bool = False) -> None:
        super().__init__(num_features, settings, twice=twice)
        self.model = _built(
            self.model_class, num_features, settings.hidden, settings.embedding, settings.dropout
        )
        self._seen: _Seen | None = None

    def propagate(self, graph: Graph, view: View, key: Tensor | None) -> Tensor:
        if self._seen is None or not self._seen.shows(graph, view):
            # Computed once for all steps with the same view. It could not be reused if it were computed
            # inside `torch.func.grad`.
            self._seen = _Seen.of(graph, view)
        seen = self._seen
        self.model.train(key is not None)
        with _drawing_from(key, graph.device):
            rows: Tensor = self.model(seen.inputs, seen.edge_index)
        return rows.new_zeros(graph.num_nodes, rows.shape[-1]).index_copy(0, seen.nodes, rows)

    def embedding(self, graph: Graph, view: View, propagated: Tensor) -> Embedding:
        return EveryNode(propagated)


@cache
def adapted(model: Any) -> type[PygEncoder]:
    """Return the encoder class for a PyG model class. The model is first tried on a tiny graph."""
    name = getattr(model, "__qualname__", shown(model))
    if not (isinstance(model, type) and issubclass(model, nn.Module)):
        raise UserError(f"encoder {name}: expected a class that inherits from torch.nn.Module.")
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        _try(model)
    about = {
        "model_class": model,
        "__doc__": model.__doc__,
        "__module__": model.__module__,
    }
    return type(model.__name__, (PygEncoder,), about)


def _built(model: type[nn.Module], inputs: int, hidden: int, outputs: int, rate: float) -> nn.Module:
    """Return a model of these widths."""
    known: dict[str, float] = {"in_channels": inputs, "hidden_channels": hidden, "out_channels": outputs}
    known |= {"num_layers": LAYERS, "dropout": rate}
    taken = inspect.signature(model).parameters
    lacking = [name for name in REQUIRED if name not in taken]
    if lacking:
        raise _unfit(model, f"the constructor has no parameter {' or '.join(lacking)}; add it")
    named = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    unknown = [
        name
        for name, parameter in taken.items()
        if parameter.kind in named and parameter.default is parameter.empty and name not in known
    ]
    if unknown:
        raise _unfit(
            model,
            f"the constructor requires {', '.join(unknown)}; every parameter needs a default, except "
            f"{', '.join(known)}",
        )
    arguments = {name: value for name, value in known.items() if name in taken}
    try:
        made = model(**arguments)
    except Exception as error:  # a constructor may raise anything
        called = ", ".join(f"{name}={value}" for name, value in arguments.items())
        raise _unfit(model, f"{model.__name__}({called}) fails: {_line(error)}") from error
    for module in made.modules():  # only parameters are saved; the constructor creates the buffers
        for name, buffer in list(module.named_buffers(recurse=False)):
            module.register_buffer(name, buffer, persistent=False)
    return made


def _try(model: type[nn.Module]) -> None:
    """Raise a UserError if a model class does not work as an encoder."""
    made = _built(model, TRIAL_INPUTS, TRIAL_HIDDEN, TRIAL_OUTPUTS, 0.5)
    if any(is_lazy(parameter) for parameter in made.parameters()):
        raise _unfit(model, "some parameters are lazy; create layers with in_channels instead of -1")
    path = torch.arange(TRIAL_NODES - 1)
    edge_index = torch.stack([torch.cat([path, path + 1]), torch.cat([path + 1, path])])
    x = torch.rand(TRIAL_NODES, TRIAL_INPUTS)

    def run(training: bool) -> Any:
        try:
            return made.train(training)(x, edge_index)
        except Exception as error:  # a model may raise anything
            raise _unfit(model, f"forward(x, edge_index) fails: {_line(error)}") from error

    before = {name: buffer.clone() for name, buffer in made.named_buffers()}
    rows = run(training=True)
    if not isinstance(rows, Tensor) or rows.shape != (TRIAL_NODES, TRIAL_OUTPUTS):
        found = f"a tensor of shape {tuple(rows.shape)}" if isinstance(rows, Tensor) else type(rows).__name__
        raise _unfit(
            model,
            f"forward(x, edge_index) returns {found} for {TRIAL_NODES} nodes and out_channels="
            f"{TRIAL_OUTPUTS}; expected a tensor of shape (nodes, out_channels)",
        )
    if not rows.requires_grad:
        raise _unfit(model, "it has no trainable parameters")
    changed = [name for name, buffer in made.named_buffers() if not torch.equal(buffer, before[name])]
    if changed:
        raise _unfit(
            model,
            f"training changes the buffer {changed[0]}, which is not saved; use LayerNorm, or BatchNorm with "
            f"track_running_stats=False",
        )
    if not torch.equal(run(training=False), run(training=False)):
        raise _unfit(
            model, "its output is random in evaluation mode; call F.dropout(..., training=self.training)"
        )


def _unfit(model: type[nn.Module], why: str) -> UserError:
    return UserError(f"encoder {model.__module__}:{model.__qualname__}: {why}.")


def _line(error: Exception) -> str:
    """Return the type of an error and the first line of its text."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0].rstrip('.')}" if text else type(error).__name__


@contextmanager
def _drawing_from(key: Tensor | None, device: torch.device) -> Iterator[None]:
    """Seed torch's generator with `key` inside the block; do nothing if it is None."""
    if key is None:
        yield
        return
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(int(key))
        yield


@dataclass(frozen=True)
class _Seen:
    """The inputs of a model for one view of a graph."""

    graph: Graph
    view: View
    nodes: Tensor  # (visible,) node numbers in the graph, ascending
    inputs: Tensor  # (visible, inputs)
    edge_index: Tensor  # (2, edges) between positions in `nodes`

    @classmethod
    def of(cls, graph: Graph, view: View) -> _Seen:
        nodes = view.visible.nonzero().squeeze(-1)
        chosen = nodes.cpu().numpy()
        edges = graph.loops[chosen][:, chosen].tocoo()
        apart = edges.row != edges.col
        edge_index = torch.stack([torch.from_numpy(end[apart]).long() for end in (edges.col, edges.row)])
        return cls(graph, view, nodes, graph.dense_inputs(view, nodes), edge_index.to(graph.device))

    def shows(self, graph: Graph, view: View) -> bool:
        """Return whether another view has the same visible nodes and inputs."""
        ours, theirs = (self.view.visible, *self.view.inputs), (view.visible, *view.inputs)
        return graph is self.graph and len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))
