"""A pack that does not fit the GPU is halved until it does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hagmeta import datasets
from hagmeta.common.files.home import home
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.engine.options import RunOptions
from study.running.trial import run_pack

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
GPU = torch.device("cuda")
NAME = "synthetic:nodes=60000,edges=300000,features=500,classes=16,seed=0"


def test_a_pack_that_does_not_fit_is_halved_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path))
    dataset = datasets.load(NAME, home() / "data")
    folder = tmp_path / "checkpoints"
    options = RunOptions(device=GPU, cache=home() / "pretrained")
    config = resolve(
        RunConfig.of(
            dataset=NAME,
            classes=(6, 6, 4),
            n_way=2,
            k_shot=3,
            sessions=1,
            pretrain_epochs=3,
            episodes=6,
            finetune_steps=2,
        )
    )

    def peak(seeds: range) -> tuple[int, list[dict], str]:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        records, _, note = run_pack([(config, seed) for seed in seeds], dataset, options, folder)
        return torch.cuda.max_memory_reserved(), records, note

    (one, *_), (eight, expected, note) = peak(range(1)), peak(range(8))
    assert note == "" and eight > 1.5 * one
    total = torch.cuda.get_device_properties(GPU).total_memory
    torch.cuda.set_per_process_memory_fraction((one + eight) / 2 / total)
    try:
        _, records, note = peak(range(8))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert note == "8 runs did not fit into GPU memory together; ran in smaller packs"
    assert [record["seed"] for record in records] == list(range(8))
    assert all(record["environment"]["seeds_in_pack"] < 8 for record in records)
    for record, other in zip(records, expected, strict=True):
        assert record["average_accuracy"] == pytest.approx(other["average_accuracy"], abs=0.05)
