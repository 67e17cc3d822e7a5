"""Where, with what and in how many seconds a run was made."""

from __future__ import annotations

import platform
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


class Clock:
    """Seconds by phase: each seed is charged its share of the pack's."""

    def __init__(self, pack: int, device: torch.device) -> None:
        self._pack, self._device = pack, device
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.seconds[phase] = (time.perf_counter() - start) / self._pack


def environment(device: torch.device, pack: int) -> dict[str, Any]:
    """Where and with what a run was made."""
    on_gpu = device.type == "cuda"
    peak = torch.cuda.max_memory_allocated(device) if on_gpu else 0
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else f"{platform.machine()} CPU",
        "threads": torch.get_num_threads(),
        "seeds_in_pack": pack,
        "peak_gpu_bytes": peak,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "python": platform.python_version(),
        **{package: version(package) for package in ("torch", "torch-geometric", "numpy", "scipy")},
        "commit": commit(),
    }


def forget_peaks(device: torch.device) -> None:
    """Peaks of memory are those of this run, also in a process that ran others before."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError):  # Linux alone lets a process reset its own
        Path("/proc/self/clear_refs").write_text("5")


@cache
def commit() -> str | None:
    """The checkout's commit, with a + where files differ from it; None outside a checkout."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")
