"""Members of a pack may differ in some settings. Each run equals that in a pack of seeds, bit by bit."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace
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
from hagmeta.engine.run import Member, prepare_members, pretrain, run_members, train_and_evaluate
from hagmeta.engine.training import pretrain as pretrain_module
from hagmeta.layers.encoders.gcn import GCN
from hagmeta.methods.closed_form.sgc import RidgeSettings, SgcRidge
from hagmeta.testing import TIME_AND_PLACE, results
from tests.hagmeta.engine.test_checkpoints import CutOff, KeptAlways

CPU = torch.device("cpu")
Tiny = Callable[..., RunConfig]
SEEDS = (3, 0, 5)
# For every setting that any method lets differ: three values on one branch of the code.
VALUES: dict[str, tuple[Any, ...]] = {
    "learning_rate": (0.005, 0.05, 0.01),
    "weight_decay": (0.0005, 0.0, 0.05),
    "finetune_rate": (0.02, 0.005, 0.05),
    "dropout": (0.5, 0.2, 0.999),
    "smoothing": (0.3, 1.0, 0.6),
    "logit_adjustment": (0.5, 2.0, 1.0),
    "nla_rate": ("common", 0.1, 0.001),
    "nla_decay": (0.1, "common", 0.0),
    "distillation": (0.0, 2.0, 1.0),
    "temperature": (2.0, 1.0, 5.0),
    "consolidation": (0.0, 100_000.0, 1000.0),
    "cosine_scale": (16.0, 1.0, 40.0),
    "ridge": (0.1, 3.0, 0.01),
    "shrinkage": (0.1, 1.0, 0.5),
    "tukey": (0.7, 0.3, 0.9),
    "kernel_width": (1.0, 0.3, 3.0),
    "truncation": (0.25, 0.0, 0.6),
    "unlabelled_weight": (0.1, 1.0, 0.01),
    "propagation_weight": (4.0, 0.5, 1.0),
    "virtual_weight": (0.01, 0.0, 1.0),
    "virtual_share": (0.1, 0.0, 0.5),
    "cluster_distance": (0.5, 0.1, 0.9),
    "cluster_nodes": (5, 2, 3),
    "inner_rate": (0.02, 0.2, 0.001),
    "probe_penalty": (1.0, 0.01, 10.0),
    "calibration": (0.5, 0.1, 1.0),
    "calibration_scale": (16.0, 1.0, 64.0),
    "spreading": (0.9, 0.0, 0.99),
    "laplacian": (2.0, 0.0, 10.0),
    "transport": (10.0, 1.0, 40.0),
    "mean_share": (0.2, 0.0, 1.0),
    "base_uniformity": (0.1, 0.0, 1.0),
    "uniformity": (1.0, 0.0, 0.3),
    "separability": (2.0, 0.0, 0.5),
    "teacher": (2.0, 0.0, 10.0),
    "cosface_scale": (15.0, 1.0, 40.0),
    "cosface_margin": (0.1, 0.0, 0.5),
    "weight_share": (0.05, 1.0, 0.5),
    "neighbour_share": (0.7, 0.1, 1.0),
    "matching": (0.01, 0.5, 0.1),
    "agreement": (0.01, 0.0, 1.0),
    "value_start": (5.0, 0.0, 2.0),
    "interaction": (1.0, 0.1, 3.0),
}


def mixed(config: RunConfig) -> list[Member]:
    """Return three members that differ in every setting that may."""
    names = may_differ(resolve(config))
    changed = [replace(config, **{name: VALUES[name][member] for name in names}) for member in range(3)]
    return list(zip(changed, SEEDS, strict=True))


def lived(members: list[Member], dataset: Dataset) -> list[Any]:
    """Return the final parameters, the predictions and the validation scores of each member."""
    resolved = [(resolve(config), seed) for config, seed in members]
    context = prepare_members(resolved, dataset, RunOptions(device=CPU))
    pack = pretrain(context)
    evaluators, validation = train_and_evaluate(context, pack)
    made = [(dict(vars(e.predictions)), e.diagnostics()) for e in evaluators]
    states = [{name: value.numpy() for name, value in state.items()} for state in pack.states()]
    return list(zip(states, made, validation, strict=True))


def assert_same(given: Any, expected: Any) -> None:
    """Compare results of `lived`: to the bit, but parameters and diagnostics on x86 up to rounding.

    There, torch rounds the last few numbers of an array differently from the others. Distances do not depend
    on the last bias, so its gradient is all rounding, and Adam makes steps of full length out of it.
    """
    if platform.machine() != "x86_64":
        np.testing.assert_equal(given, expected)
        return
    (state, (predictions, _), validation), (known, (theirs, _), scores) = given, expected
    for one, other in zip(predictions.pop("confidence"), theirs.pop("confidence"), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4)
    np.testing.assert_equal((predictions, validation), (theirs, scores))
    for name, value in state.items():
        if name not in ("encoder.bias", "encoder.second.bias"):
            np.testing.assert_allclose(value, known[name], rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("method", ["hag-meta", "sgc-lda"])
def test_a_member_is_the_same_to_the_bit_in_a_mixed_pack_and_in_one_of_seeds(
    tiny_graph: Dataset, tiny: Tiny, method: str
) -> None:
    members = mixed(tiny(method=method, pretrain_epochs=3, episodes=2))
    assert len({config.hash() for config, _ in members}) == 3
    together = lived(members, tiny_graph)
    place = 2  # not the first, as below
    # At the same place of a pack, because the last few numbers of an array may be rounded differently.
    of_seeds = lived([(members[place][0], seed) for seed in SEEDS], tiny_graph)
    assert_same(together[place], of_seeds[place])


@pytest.mark.parametrize(
    "case",
    [
        pytest.param({"encoder": "mlp", "protocol": "released"}, marks=pytest.mark.slow),
        pytest.param({"encoder": "sage", "inputs": "svd", "rehearsal": "none"}, marks=pytest.mark.slow),
        pytest.param({"encoder": "sgc", "self_training": 2, "prior": "estimated"}, marks=pytest.mark.slow),
    ],
    ids=lambda case: case["encoder"],
)
def test_so_it_is_with_other_encoders_and_protocols(
    tiny_graph: Dataset, tiny: Tiny, case: dict[str, Any]
) -> None:
    members = mixed(tiny(episodes=2, **case))
    together = lived(members, tiny_graph)
    for place in (1, 2):  # not the first, whose values the others would have if they had not their own
        of_seeds = lived([(members[place][0], seed) for seed in SEEDS], tiny_graph)
        assert_same(together[place], of_seeds[place])


def test_a_mixed_pack_gives_the_records_of_its_runs_and_pretrains_once_for_each_encoder(
    tiny_graph: Dataset, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = [tiny(finetune_rate=rate) for rate in (0.02, 0.005)]
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
    members = mixed(tiny(method="icarl", episodes=2))

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
