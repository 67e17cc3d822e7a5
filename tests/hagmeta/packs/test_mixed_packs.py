"""Members of a pack may differ in some settings. Each run equals that in a pack of seeds, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig, may_differ, pack_key, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine import checkpoints as checkpoints_module
from hagmeta.engine.checkpoints import Checkpoints
from hagmeta.engine.options import RunOptions
from hagmeta.engine.run import run_members
from hagmeta.engine.training import pretrain as pretrain_module
from hagmeta.layers.encoders.gcn import GCN
from hagmeta.methods.closed_form.sgc import RidgeSettings, SgcRidge
from hagmeta.testing import TIME_AND_PLACE, results
from tests.hagmeta.engine.test_checkpoints import CutOff, KeptAlways

CPU = torch.device("cpu")
Tiny = Callable[..., RunConfig]
SEEDS = (3, 0, 5)


def test_a_mixed_pack_gives_the_records_of_its_runs_and_pretrains_once_for_each_encoder(
    tiny_graph: Dataset, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = [tiny(finetune_rate=rate, nla_rate=5 * rate) for rate in (0.02, 0.005)]
    members = [(config, seed) for seed in (4, 1) for config in configs]
    sizes = []
    train = pretrain_module._train
    monkeypatch.setattr(
        pretrain_module, "_train", lambda *given: (sizes.append(given[2].size), train(*given))
    )
    for cache in (None, tmp_path):
        outputs = run_members(members, tiny_graph, RunOptions(device=CPU, cache=cache))
        expected = {config.hash(): results(config, [1, 4], tiny_graph) for config in configs}
        for (config, seed), (record, *_) in zip(members, outputs, strict=True):
            assert record["environment"]["seeds_in_pack"] == 4
            told = {key: value for key, value in record.items() if key not in TIME_AND_PLACE}
            assert told == expected[config.hash()][seed]
            assert told["config"]["finetune_rate"] == config.finetune_rate
    assert sizes == [2] * 6 and len(list(tmp_path.glob("*.pt"))) == 2


def test_a_mixed_pack_cut_off_at_every_moment_ends_as_if_it_never_was(
    tiny_graph: Dataset, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints_module, "COST_SHARE", np.inf)
    configs = [tiny(method="icarl", episodes=2, learning_rate=rate) for rate in (0.005, 0.05, 0.01)]
    members = list(zip(configs, (3, 0, 5), strict=True))

    def told(checkpoints: Checkpoints | None = None) -> Any:
        outputs = run_members(members, tiny_graph, RunOptions(device=CPU, checkpoints=checkpoints))
        return [
            {key: value for key, value in record.items() if key not in TIME_AND_PLACE}
            for record, *_ in outputs
        ]

    cuts = 0
    while True:
        try:
            ended = told(KeptAlways(tmp_path, "pack", {}, least_seconds=0))
            break
        except CutOff:
            cuts += 1
    assert cuts > 2 and ended == told()


def test_members_of_plain_mode_run_one_by_one(tiny_graph: Dataset, tiny: Tiny) -> None:
    configs = [tiny(method="sgc-ridge", features="propagated", ridge=ridge) for ridge in (0.1, 10.0)]
    members = [(config, 2) for config in configs]
    outputs = run_members(members, tiny_graph, RunOptions(device=CPU, mode="plain"))
    assert [output.record["config"]["ridge"] for output in outputs] == [0.1, 10.0]
    assert all(output.record["environment"]["seeds_in_pack"] == 1 for output in outputs)


SAME = [
    ({"learning_rate": 0.1}, {"weight_decay": 0.0, "finetune_rate": 1.0}),
    ({"dropout": 0.1}, {"dropout": 0.9}),
    ({"nla_rate": 0.1}, {"nla_decay": 0.0}),
    ({"method": "fecam", "tukey": 0.3, "shrinkage": 1.0}, {"method": "fecam", "tukey": 0.7}),
]
APART = [
    ({"dropout": 0.0}, {"dropout": 0.1}),
    ({"smoothing": 0.0}, {"smoothing": 0.1}),
    ({"logit_adjustment": 0.0}, {"logit_adjustment": 1.0}),
    ({"prior": "equal"}, {"prior": "estimated"}),
    ({"method": "fecam", "tukey": 1.0}, {"method": "fecam", "tukey": 0.9}),
    ({"method": "posterior-means", "unlabelled_weight": 0.0}, {"method": "posterior-means"}),
    ({"method": "posterior-means", "propagation_weight": 0.0}, {"method": "posterior-means"}),
    ({"hidden": 8}, {"hidden": 16}),
    ({"episodes": 8}, {"episodes": 9}),
    ({"method": "frozen"}, {"method": "joint"}),
]


@pytest.mark.parametrize(
    ("one", "other", "same"), [*((*c, True) for c in SAME), *((*c, False) for c in APART)]
)
def test_values_at_which_code_branches_are_packed_apart(
    tiny: Tiny, one: dict[str, Any], other: dict[str, Any], same: bool
) -> None:
    keys = [pack_key(resolve(tiny(**each))) for each in (one, other)]
    assert (keys[0] == keys[1]) is same and len({hash(key) for key in keys}) == 2 - same


def test_a_plug_in_is_mixed_only_in_what_it_declares(tiny: Tiny) -> None:
    class Silent(SgcRidge):
        own_settings = RidgeSettings

    class Declaring(SgcRidge):
        own_settings = RidgeSettings
        differs = ("ridge",)

    class Mistaken(SgcRidge):
        own_settings = RidgeSettings
        differs = ("rigde",)

    class OwnEncoder(GCN):
        pass

    assert may_differ(resolve(tiny(method=Silent))) == ()
    assert may_differ(resolve(tiny(method=Declaring))) == ("ridge",)
    assert may_differ(resolve(tiny(encoder=OwnEncoder))) == ()
    with pytest.raises(UserError, match=r"differs.*rigde.*ridge"):
        may_differ(resolve(tiny(method=Mistaken)))


def test_configurations_that_cannot_share_a_pack_are_refused(tiny_graph: Dataset, tiny: Tiny) -> None:
    members = [(tiny(hidden=width), 0) for width in (8, 16)]
    with pytest.raises(ValueError, match="may differ only in"):
        run_members(members, tiny_graph, RunOptions(device=CPU))
