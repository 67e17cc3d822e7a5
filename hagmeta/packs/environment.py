"""Where, with what and in how many seconds a run was made."""

from __future__ import annotations

import hashlib
import platform
import resource
import subprocess
import time
from collections.abc import Iterator, Mapping
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
        self._now: tuple[str, float] | None = None  # the phase, and when it began
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        self._now = phase, time.perf_counter()
        yield
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.seconds, self._now = self.so_far(), None

    def so_far(self) -> dict[str, float]:
        """With the phase that goes on."""
        if self._now is None:
            return self.seconds
        phase, start = self._now
        return self.seconds | {
            phase: self.seconds.get(phase, 0.0) + (time.perf_counter() - start) / self._pack
        }

    def add(self, seconds: Mapping[str, float]) -> None:
        """Those of a run that was cut off, and now goes on."""
        for phase, spent in seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + spent


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
def code_version() -> str:
    """The content of this package: changes with every change of its code."""
    folder = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def commit() -> str | None:
    """The checkout's commit, with a + where files differ from it; None outside a checkout."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        # Installed into an environment within another project's checkout, that project's commit is not ours.
        subprocess.run([*git, "ls-files", "--error-unmatch", __file__], capture_output=True, check=True)
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")
