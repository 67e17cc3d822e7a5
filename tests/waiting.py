"""Wait for what must come, not for a time: a loaded machine is slow, and that is no failure."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

HANG = 900.0  # seconds: a limit that only a hang reaches
T = TypeVar("T")


def wait_for(found: Callable[[], T], process: subprocess.Popen[str] | None = None) -> T:
    """Return the first true value that `found` returns, while the process that brings it about runs."""
    end = time.monotonic() + HANG
    while not (result := found()):
        if process is not None and process.poll() is not None:
            raise AssertionError(f"exit status {process.returncode}: {process.communicate()[0]}")
        assert time.monotonic() < end, f"not within {HANG:.0f} seconds"
        time.sleep(0.05)
    return result
