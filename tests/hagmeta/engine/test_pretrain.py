"""Pre-trained encoders are computed once and shared."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hagmeta.common.errors import UserError
from hagmeta.common.settings.domains import Number
from hagmeta.common.settings.setting import setting
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.options import RunOptions
from hagmeta.engine.run import prepare_members
from hagmeta.engine.training.pretrain import pretrained_encoders
from hagmeta.layers.encoders.base import LayerSettings
from hagmeta.layers.encoders.gcn import GCN
from hagmeta.packs.pack import Parameters
from hagmeta.sparse import inputs as inputs_module
from tests.waiting import HANG

CPU = torch.device("cpu")
Small = Callable[..., RunConfig]


@pytest.fixture
def dataset(tiny_graph: Dataset) -> Dataset:
    return tiny_graph


@pytest.fixture
def small(tiny: Small) -> Small:
    """Settings in which two classes can be held out."""
    return partial(tiny, n_way=1, classes=(2, 3, 4))


def encoders(
    config: RunConfig, seeds: list[int], dataset: Dataset, folder: Path | None
) -> tuple[list[Parameters], int]:
    """The encoders, and how many validations it took to get them."""
    calls: list[str] = []

    def watch(phase: str, done: int, total: int, values: dict[str, float]) -> None:
        calls.append(phase)

    options = RunOptions(device=CPU, cache=folder, progress=watch)
    return pretrained_encoders(context_of(config, seeds, dataset, options)), len(calls)


def context_of(config: RunConfig, seeds: list[int], dataset: Dataset, options: RunOptions) -> Context:
    return prepare_members([(resolve(config), seed) for seed in seeds], dataset, options)


def same(one: list[Parameters], other: list[Parameters]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(torch.equal(value, right[name]) for left, right in pairs for name, value in left.items())


def test_cached_encoders_are_those_computed_and_cost_nothing(
    dataset: Dataset, small: Small, tmp_path: Path
) -> None:
    config = small(pretrain_epochs=20)  # validated twice
    computed, _ = encoders(config, [0, 1, 2], dataset, None)
    first, work = encoders(config, [0, 1], dataset, tmp_path)
    assert work > 0 and same(first, computed[:2])
    # Seeds that are there are not computed again, whoever they come with.
    more, _ = encoders(config, [2, 1, 0], dataset, tmp_path)
    assert same(more, computed[::-1])
    again, work = encoders(config, [0, 1, 2], dataset, tmp_path)
    assert work == 0 and same(again, computed)


def test_methods_toggles_and_episodes_share_an_encoder_but_settings_of_it_do_not(
    dataset: Dataset, small: Small, tmp_path: Path
) -> None:
    encoders(small(), [0], dataset, tmp_path)
    inductive = small(unlabelled_nodes="training")  # raw inputs are not computed from any node
    for shared in (small(nla=False), small(gpil=False), small(episodes=5, finetune_steps=0), inductive):
        assert encoders(shared, [0], dataset, tmp_path)[1] == 0
    for other in (
        small(hidden=16),
        small(dropout=0.1),
        small(learning_rate=0.01),
        small(pretrain_on="known"),
        small(val_classes=2),
        small(visibility="whole"),
        small(encoder="gat"),
        small(inputs="svd"),
        small(inputs="svd", unlabelled_nodes="training"),
    ):
        assert encoders(other, [0], dataset, tmp_path)[1] > 0
    # Pre-training under the released protocol is on known classes, too, but normalised by the whole graph.
    assert encoders(small(protocol="released"), [0], dataset, tmp_path)[1] > 0


@dataclass(frozen=True, kw_only=True)
class ScaledSettings(LayerSettings):
    """A setting of somebody else's encoder."""

    input_scale: float = setting(
        1.0,
        "multiplies the first layer's weights",
        Number(at_most=10, above=0),
        scope="method",
    )


class Scaled(GCN):
    """An encoder of somebody else's."""

    own_settings = ScaledSettings

    def __init__(self, num_features: int, settings: Any, *, twice: bool = False) -> None:
        super().__init__(num_features, settings, twice=twice)
        self.first.weight.data *= settings.input_scale


def test_an_encoder_with_settings_of_its_own_is_kept_for_each_of_them(
    dataset: Dataset, small: Small, tmp_path: Path
) -> None:
    for scale in (1.0, 2.0, 2.0):
        encoders(small(encoder=Scaled, input_scale=scale), [0], dataset, tmp_path)
    assert len(list(tmp_path.glob("*.pt"))) == 2


def test_other_data_is_another_encoder(dataset: Dataset, small: Small, tmp_path: Path) -> None:
    encoders(small(), [0], dataset, tmp_path)
    doubled = replace(dataset, features=dataset.features * np.float32(2))
    assert encoders(small(), [0], doubled, tmp_path)[1] > 0


def test_an_svd_is_computed_once_and_what_is_read_is_what_was_computed(
    dataset: Dataset, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def inputs(cache: Path | None, graph: Dataset = dataset, **settings: str) -> tuple[Tensor, ...]:
        config = small(**{"inputs": "svd"} | settings)
        return context_of(config, [0, 1], graph, RunOptions(device=CPU, cache=cache)).known.views.inputs

    cache = tmp_path / "new"
    computed, first = inputs(None), inputs(cache)
    paths = list(cache.iterdir())
    assert len(paths) == 2
    with monkeypatch.context() as patch:
        patch.setattr(inputs_module, "_singular_vectors", None)  # not called again
        for others in (first, inputs(cache, method="cec", protocol="released", encoder="gat")):
            assert all(torch.equal(*pair) for pair in zip(others, computed, strict=True))
        inputs(cache, inputs="tf-idf")  # costs nothing, and is not kept
        assert list(cache.iterdir()) == paths
        with pytest.raises(TypeError):
            inputs(cache, visibility="whole")
        with pytest.raises(TypeError):
            inputs(cache, replace(dataset, features=dataset.features * np.float32(2)))
    paths[0].write_bytes(paths[0].read_bytes()[:100])
    with pytest.raises(UserError, match=paths[0].name):
        inputs(cache)


@pytest.mark.slow
def test_two_processes_that_need_the_same_encoders_compute_them_once(tmp_path: Path) -> None:
    program = f"""
import sys, torch
from pathlib import Path
from hagmeta import datasets
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.engine.options import RunOptions
from hagmeta.engine.training.pretrain import pretrained_encoders
from hagmeta.engine.run import prepare_members
name = "synthetic:nodes=1200,edges=5000,features=150,classes=14,seed=1"
data = datasets.load(name, Path())
config = resolve(RunConfig.of(dataset=name, classes=(4, 5, 5), n_way=2, k_shot=3, pretrain_epochs=60))
work = []
cache = Path({str(tmp_path)!r})
options = RunOptions(device=torch.device("cpu"), cache=cache, progress=lambda *a: work.append(a))
pretrained_encoders(prepare_members([(config, int(seed)) for seed in sys.argv[1:]], data, options))
print(len(work))
"""
    # The packs overlap, in opposite orders: locks taken as they come would wait for each other for ever.
    packs = (["0", "1", "2"], ["2", "1", "0"])
    processes = [
        subprocess.Popen([sys.executable, "-c", program, *seeds], stdout=subprocess.PIPE, text=True)
        for seeds in packs
    ]
    work = sorted(int(process.communicate(timeout=HANG)[0]) for process in processes)
    assert work[0] == 0 and work[1] > 0
    assert len(list(tmp_path.glob("*.pt"))) == 3
    assert not list(tmp_path.glob("*.partial"))


def test_a_damaged_encoder_is_named(dataset: Dataset, small: Small, tmp_path: Path) -> None:
    encoders(small(), [0], dataset, tmp_path)
    (path,) = tmp_path.glob("*.pt")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match=path.name):
        encoders(small(), [0], dataset, tmp_path)
