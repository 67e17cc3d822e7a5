from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import HANG


@pytest.fixture(autouse=True, scope="session")
def a_ray_of_our_own() -> Iterator[None]:
    """Whatever else runs on this machine: no other cluster is joined, disturbed or made to be found."""
    folder = Path(tempfile.mkdtemp(prefix="hagmeta-", dir="/tmp"))  # sockets below have short names at most
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
            patch.delenv(name, raising=False)
        patch.setenv("RAY_TMPDIR", str(folder))
        # Ray's workers have niceness 15 and a minute to register: on a busy machine they hardly run.
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("RAY_worker_register_timeout_seconds", f"{HANG:.0f}")
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")  # it kills workers when others fill the memory
        yield
    shutil.rmtree(folder, ignore_errors=True)
