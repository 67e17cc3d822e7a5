"""Whatever is killed in the midst of a study: every run once, with the records of an undisturbed study."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from study.store.store import Store
from tests.study.test_launch import prepared, records_in, start, workers
from tests.waiting import HANG, wait_for

pytestmark = pytest.mark.slow
OPTIONS = ("--seeds-per-trial", "1", "--max-concurrent", "2", "--no-report")
VICTIMS = {
    "launcher": (signal.SIGKILL, "launcher"),
    "launcher, by SIGTERM": (signal.SIGTERM, "launcher"),
    "worker": (signal.SIGKILL, "worker"),
    "raylet": (signal.SIGKILL, "raylet"),
    "GCS": (signal.SIGKILL, "gcs_server"),
}


def content(folder: Path) -> dict[tuple[str, int], Any]:
    """Return the records and predictions of a study, without what describes time and place."""
    store, found = Store(folder / "results" / "tiny"), {}
    for record in store.records():
        key = record["config_hash"], record["seed"]
        with np.load(store.predictions_of(key)) as arrays:
            predictions = {name: arrays[name].tolist() for name in arrays}
        same = {name: value for name, value in record.items() if name not in ("seconds", "environment")}
        found[key] = json.dumps(same, sort_keys=True), predictions
    return found


def versions(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return what changes when a record is written again."""
    statuses = {path: path.stat() for path in records_in(folder)}
    return {path: (status.st_ino, status.st_mtime_ns) for path, status in statuses.items()}


def victim_of(process: subprocess.Popen[str], name: str) -> psutil.Process:
    driver = psutil.Process(process.pid)
    if name == "launcher":
        return driver
    if name == "worker":
        return wait_for(lambda: workers(process.pid, "train"), process)[0]
    return next(child for child in driver.children(recursive=True) if child.name() == name)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, int], Any]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    with prepared(folder):
        process = start(folder, *OPTIONS)
        output, _ = process.communicate(timeout=HANG)
        assert process.returncode == 0, output
        yield content(folder)


@pytest.mark.parametrize("records", [0, 3], ids=["in the first trials", "after three runs"])
@pytest.mark.parametrize("killed", VICTIMS)
def test_every_run_ends_once_and_equal_whatever_was_killed(
    tmp_path: Path, undisturbed: dict[tuple[str, int], Any], killed: str, records: int
) -> None:
    number, name = VICTIMS[killed]
    with prepared(tmp_path):
        process = start(tmp_path, *OPTIONS)
        wait_for(lambda: workers(process.pid, "train") and len(records_in(tmp_path)) >= records, process)
        victim_of(process, name).send_signal(number)
        output, _ = process.communicate(timeout=HANG)
        before = versions(tmp_path)
        assert "Traceback" not in output
        by_signal = [-number if number == signal.SIGKILL else 128 + number]
        # Workers outlive their raylet for some seconds, and may finish the study.
        assert process.returncode in {"worker": [0], "raylet": [0, 1], "gcs_server": [1]}.get(name, by_signal)
        if process.returncode:
            assert records <= len(before) < len(undisturbed)
            process = start(tmp_path, *OPTIONS)
            output, _ = process.communicate(timeout=HANG)
            assert f"{len(before)} done, {len(undisturbed) - len(before)} to go" in output
        assert process.returncode == 0, output
        assert before.items() <= versions(tmp_path).items()  # nothing was run again
        assert content(tmp_path) == undisturbed
