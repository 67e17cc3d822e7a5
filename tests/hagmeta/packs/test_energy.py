"""The energy of a trial, read from the counter of a GPU. Without one, the counter is invented."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine import run as engine
from hagmeta.engine.checkpoints import Checkpoints
from hagmeta.engine.options import RunOptions
from hagmeta.packs.environment import gpu_joules

CPU, GPU = torch.device("cpu"), torch.device("cuda")
UUID = "11111111-2222-3333-4444-555555555555"


class NVMLError(Exception):
    pass


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Millijoules by UUID, as a fake of the module pynvml reads them; other GPUs have no counter."""
    counts = {f"GPU-{UUID}": 1_234_567}

    def read(gpu: str) -> int:
        if gpu not in counts:
            raise NVMLError("Not Supported")
        return counts[gpu]

    pynvml = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetTotalEnergyConsumption=read,
    )
    monkeypatch.setitem(sys.modules, "pynvml", pynvml)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=UUID))
    return counts


def test_the_counter_is_read_in_joules(counter: dict[str, int]) -> None:
    assert gpu_joules(GPU) == 1234.567 and gpu_joules(CPU) is None
    counter.clear()
    assert gpu_joules(GPU) is None


def test_without_the_package_there_is_no_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_joules(GPU) is None


def test_records_have_the_energy_of_their_pack_and_its_share(
    tiny_graph: Dataset, tiny: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    readings = iter([100.0, 130.5, 200.0, 300.0])
    monkeypatch.setattr(engine, "gpu_joules", lambda device: next(readings))
    checkpoints = Checkpoints(tmp_path, "pack", {}, least_seconds=0)
    options = RunOptions(device=CPU, gpu_share=0.125, checkpoints=checkpoints)
    for output in engine.run(tiny(), [0, 1], tiny_graph, options):
        found: dict[str, Any] = output.record["environment"]
        assert (found["gpu_joules"], found["gpu_share"]) == (30.5, 0.125)
    # A run that continues does not know what was used before it was interrupted.
    continued = RunOptions(device=CPU, checkpoints=Checkpoints(tmp_path, "pack", {}))
    assert continued.checkpoints and continued.checkpoints.spent_before
    (output, _) = engine.run(tiny(), [0, 1], tiny_graph, continued)
    assert "gpu_joules" not in output.record["environment"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_real_counter_grows() -> None:
    pytest.importorskip("pynvml")
    before = gpu_joules(GPU)
    values = torch.rand(8192, 8192, device=GPU)
    for _ in range(100):
        values = (values @ values).clamp_(0, 1)
    torch.cuda.synchronize()
    after = gpu_joules(GPU)
    assert before and after and 1 < after - before < 10_000
