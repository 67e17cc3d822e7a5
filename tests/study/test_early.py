"""Ray starts before a study is read: only for one that has something to run, and it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from study import early
from study.options import read_options
from study.running import connection
from tests.study.test_launch import ROOT, SPACE
from tests.waiting import HANG, wait_for


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        (["--space", "tiny.yaml"], True),
        (["--space", "smoke"], True),
        (["--methods", "cec", "--dataset", "debian"], True),
        (["--space", "tiny.yaml", "--quick"], True),
        (["--space", "tiny.yaml", "--name", "begun"], False),  # perhaps nothing is left to run
        (["--space", "tiny.yaml", "--dry-run"], False),
        (["--space", "tiny.yaml", "--address", "auto"], False),
        (["--space", "tiny.yaml", "--results", "s3://bucket/results"], False),
        (["--space", "tiny.yaml", "--mps"], False),  # MPS starts first
        (["--space", "missing.yaml"], False),
        (["--space", f"{'x' * 5000}.yaml"], False),
        (["--space", "plugin.yaml"], False),  # its workers need another Ray
        (["--methods", "mine.py:Mine", "--dataset", "debian"], False),
        (["--space", "tiny.yaml", "--metric", "mine.py:Mine"], False),
    ],
)
def test_only_a_new_study_begins_to_start_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], begins: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(SPACE)
    Path("plugin.yaml").write_text("datasets: [debian]\nfixed: {method: 'mine.py:Mine'}\n")
    Path("results", "begun", "runs").mkdir(parents=True)
    begun: list[Path] = []
    monkeypatch.setattr(connection, "begin_ray", lambda root, **_: begun.append(root))
    early.begin_ray_for(read_options(options, None))
    assert begun == [ROOT] * begins


def test_an_error_in_the_background_is_raised_where_ray_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("no port is free")

    monkeypatch.setattr(ray, "init", fail)
    try:
        connection.begin_ray(ROOT)
        with pytest.raises(RuntimeError, match="no port is free"):
            connection.start_ray(None, ROOT)
    finally:
        connection.end_ray()
    assert not ray.is_initialized() and not connection.is_up()


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True], ids=["bad input", "Ctrl-C"])
def test_a_launch_that_ends_early_leaves_no_ray(tmp_path: Path, stopped: bool) -> None:
    text = SPACE if stopped else SPACE.replace("hidden: 16", "hiden: 16")
    (tmp_path / "tiny.yaml").write_text(text)
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "study" / "launch.py"), "--space", "tiny.yaml"],
        cwd=tmp_path,
        env={**os.environ, "HAGMETA_HOME": str(tmp_path / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    below: list[psutil.Process] = wait_for(lambda: psutil.Process(process.pid).children(), process)
    if stopped:
        process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=HANG)
    assert process.returncode == (130 if stopped else 2), output
    assert (
        output.startswith("Stopped by SIGINT" if stopped else "error: tiny.yaml") and output.count("\n") == 1
    )
    assert not psutil.wait_procs(below, timeout=HANG)[1]
