"""Plain mode is the packed run of a seed alone, in steps that can be looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.methods.paper.hag_meta import HagMeta
from hagmeta.packs import capture, pack, randomness
from hagmeta.packs.function import Function
from hagmeta.packs.pack import EarlyStopping, Pack
from hagmeta.packs.plain import PlainPack
from hagmeta.sparse import matrices, products
from hagmeta.sparse.graph import View
from hagmeta.testing import records_of

CPU = torch.device("cpu")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = [CPU, pytest.param(torch.device("cuda"), marks=on_gpu)]
SEED = 3
Small = Callable[..., RunConfig]


def run_plainly(graph: Dataset, make: Small, device: torch.device = CPU) -> None:
    config = make(pretrain_epochs=3, episodes=4, validate_every=2)
    (record,) = records_of(config, [SEED], graph, device=device, mode="plain")
    assert record["environment"]["plain"]


def forbid(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    def forbidden(*arguments: Any, **keywords: Any) -> NoReturn:
        raise AssertionError(f"{owner} {name} was called")

    monkeypatch.setattr(owner, name, forbidden)


@pytest.mark.parametrize("device", DEVICES)
def test_neither_vmap_nor_captures_nor_custom_products_are_used(
    narrow: Dataset, small: Small, monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    forbid(monkeypatch, pack, "vmap")
    forbid(monkeypatch, pack, "functional_call")
    forbid(monkeypatch, capture, "_Captured")
    functions = [kind for kind in vars(products).values() if isinstance(kind, type)]
    functions = [kind for kind in functions if issubclass(kind, Function) and kind is not Function]
    assert products._Product in functions
    for function in [*functions, randomness._ReluDropout]:
        forbid(monkeypatch, function, "apply")
    for matrix in (matrices.SparseMatrix, matrices.DenseMatrix, matrices.SeedwiseMatrix):
        forbid(monkeypatch, matrix, "__init__")
    run_plainly(narrow, small, device)


def test_a_print_in_a_methods_loss_shows_the_tensors_of_one_seed(
    narrow: Dataset, small: Small, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ordinary, seen = HagMeta.loss, []

    def loss(self: HagMeta, shared: Any, view: View, task: Any, target: Tensor, key: Tensor) -> Any:
        loss, logits = ordinary(self, shared, view, task, target, key)
        print("the loss is", loss)
        seen.append((view.scale.dim(), task.query.dim(), logits.dim(), loss.dim()))
        return loss, logits

    monkeypatch.setattr(HagMeta, "loss", loss)
    run_plainly(narrow, small)
    printed = capsys.readouterr().out
    assert set(seen) == {(1, 1, 2, 0)}
    assert "the loss is tensor(" in printed and "BatchedTensor" not in printed  # as it would be under vmap


class Line(nn.Module):
    """A module as packs run them: every step through ``forward``."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor([2.0, 3.0]))
        self.fixed = nn.Parameter(torch.tensor([1.0]), requires_grad=False)

    def forward(self, step: str, *arguments: Any) -> Any:
        return getattr(self, step)(*arguments)

    def answer(self, factor: float, view: View, pair: tuple[Tensor, Tensor]) -> dict[str, Any]:
        assert view.scale.shape == (4,) and pair[0].shape == ()
        return {"sum": (factor * self.slope * pair[0]).sum(), "nested": (self.slope, (pair[1],)), "none": ()}


def test_run_takes_the_pack_axis_off_and_puts_it_back() -> None:
    module = Line()
    view = View(*torch.ones(3, 1, 4), fixed_features=(torch.ones(1, 4, 2),))
    answer = PlainPack([module], CPU).run("answer", (10.0,), view, (torch.ones(1), torch.zeros(1, 3)))
    assert answer["sum"].tolist() == [50.0]
    assert [value.shape for value in (answer["nested"][0], answer["nested"][1][0])] == [(1, 2), (1, 3)]
    assert answer["none"] == ()
    answer["sum"].sum().backward()
    assert module.slope.grad is not None and module.slope.grad.tolist() == [10.0, 10.0]


def test_parameters_are_the_modules_own_and_change_as_those_of_a_pack() -> None:
    module = Line()
    plain = PlainPack([module], CPU)
    assert plain.template is module and plain.size == 1 and plain.device == CPU
    assert plain.parameters["slope"] is module.slope
    before = plain.snapshot()
    plain.assign({"slope": torch.tensor([[5.0, 6.0]])})
    assert module.slope.tolist() == [5.0, 6.0]
    assert before["slope"].tolist() == [2.0, 3.0] and plain.states()[0]["slope"].tolist() == [5.0, 6.0]
    plain.restore(before)
    assert module.slope.tolist() == [2.0, 3.0]
    (group,) = plain.optimizer(0.1, 0.0).param_groups
    assert [id(value) for value in group["params"]] == [id(module.slope)]


@pytest.mark.parametrize(("kind", "seeds"), [(Pack, 2), (PlainPack, 1)])
def test_loaded_states_leave_other_parameters_and_new_rows(kind: type[Pack], seeds: int) -> None:
    pack = kind([Line() for _ in range(seeds)], CPU)
    pack.load([{"slope": torch.tensor([float(seed)])} for seed in range(seeds)])
    states = pack.states()
    assert [state["slope"].tolist() for state in states] == [[float(seed), 3.0] for seed in range(seeds)]
    assert all(state["fixed"].tolist() == [1.0] for state in states)
    pack.load([])
    assert all(
        torch.equal(now["slope"], old["slope"]) for now, old in zip(pack.states(), states, strict=True)
    )


@pytest.mark.parametrize("kind", [Pack, PlainPack])
def test_early_stopping_keeps_the_best(kind: type[Pack]) -> None:
    one = kind([Line()], CPU)
    stopping = EarlyStopping(one, patience=2)
    for value, score in ((1.0, 0.4), (2.0, 0.9), (3.0, 0.5), (4.0, 0.6), (5.0, 1.0)):
        one.assign({"slope": torch.full((1, 2), value)})
        stopping.update(np.array([score]))
    assert stopping.finished
    stopping.restore_best()
    assert one.states()[0]["slope"].tolist() == [2.0, 2.0]


def test_more_than_one_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="one seed at a time, not 2"):
        PlainPack([Line(), Line()], CPU)


def test_arguments_of_more_than_one_seed_are_refused() -> None:
    with pytest.raises(ValueError, match="too many values"):
        PlainPack([Line()], CPU).run("answer", (1.0,), torch.ones(2, 4))


def test_several_seeds_run_one_after_the_other(tiny_graph: Dataset, tiny: Small) -> None:
    config = tiny()
    records = records_of(config, [0, 5], tiny_graph, mode="plain")
    assert [record["seed"] for record in records] == [0, 5]
    assert all(record["environment"]["seeds_in_pack"] == 1 for record in records)
    assert records[1]["matrix"] == records_of(config, [5], tiny_graph, mode="plain")[0]["matrix"]
