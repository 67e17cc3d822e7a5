"""Measure the run time, and describe the machine and the software of a run."""

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
    """Measures seconds by phase. Each seed gets an equal share of the time of its pack."""

    def __init__(self, pack: int, device: torch.device) -> None:
        self._pack, self._device = pack, device
        self._now: tuple[str, float] | None = None  # the current phase and its start
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        self._now = phase, time.perf_counter()
        yield
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.seconds, self._now = self.so_far(), None

    def so_far(self) -> dict[str, float]:
        """Return the seconds by phase, including the current phase."""
        if self._now is None:
            return self.seconds
        phase, start = self._now
        return self.seconds | {
            phase: self.seconds.get(phase, 0.0) + (time.perf_counter() - start) / self._pack
        }

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds of an interrupted run that now continues."""
        for phase, spent in seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + spent


def environment(device: torch.device, pack: int) -> dict[str, Any]:
    """Return a description of the machine and the software."""
    on_gpu = device.type == "cuda"
    peak = torch.cuda.max_memory_allocated(device) if on_gpu else 0
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else f"{platform.machine()} CPU",
        "threads": torch.get_num_threads(),
        "seeds_in_pack": pack,
        "peak_gpu_bytes": peak,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "python": platform.python_version(),
        **_versions(),
        "commit": commit(),
    }


def gpu_joules(device: torch.device) -> float | None:
    """Return the energy that the whole GPU has used since its driver was loaded, or None without a counter.

    Reading it takes the package nvidia-ml-py and a GPU that counts.
    """
    if device.type != "cuda":
        return None
    try:
        import pynvml  # optional
    except ImportError:
        return None
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        # NVML numbers all GPUs of the machine, and CUDA only those that this process may use.
        gpu = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)) / 1000
    return None


@cache
def _versions() -> dict[str, str]:
    return {package: version(package) for package in ("torch", "torch-geometric", "numpy", "scipy")}


def forget_peaks(device: torch.device) -> None:
    """Reset peak memory statistics, so that they do not include earlier runs of the process."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError):  # only Linux supports this
        Path("/proc/self/clear_refs").write_text("5")


@cache
def code_version() -> str:
    """Return a hash of the code of this package."""
    folder = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def commit() -> str | None:
    """Return the git commit, with a + if files were modified; None if the code has no history.

    An installed package has the commit of the checkout that it was built from.
    """
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        # The package may be installed inside the checkout of another project, whose commit is not wanted.
        subprocess.run([*git, "ls-files", "--error-unmatch", __file__], capture_output=True, check=True)
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        built = Path(__file__).with_name("COMMIT")  # written by setup.py
        return built.read_text() if built.is_file() else None
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")
