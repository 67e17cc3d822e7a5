from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from study.running import connection
from study.running.own_ray import PRIVATE
from tests.waiting import HANG

ROOT = Path(__file__).resolve().parents[2]


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
        ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def start_shared_ray() -> None:
    """Start one Ray for many studies, which use it as they use a Ray of the user: a start takes seconds."""
    if ray.is_initialized():
        return
    stopping = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HAGMETA_HOME", str(Path(os.environ["RAY_TMPDIR"], "home")))  # that of its workers
        ray.init(
            address="local",
            runtime_env=connection._environment(None, ROOT, None),
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=False,
            resources={PRIVATE: 1},
        )
    signal.signal(signal.SIGTERM, stopping)  # Ray has replaced it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests first that need no Ray at the start: after them, the shared one starts only once."""
    items.sort(key=lambda item: "no_ray" not in getattr(item, "fixturenames", ()))


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End Ray after the last study: its processes never rest."""
    if nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent):
        ray.shutdown()


@pytest.fixture
def shared_ray() -> None:
    """A Ray that is there already, for tests of studies that do not ask who has started it."""
    start_shared_ray()


@pytest.fixture
def no_ray() -> None:
    """No Ray at the start, for tests in which the product starts its own."""
    ray.shutdown()
