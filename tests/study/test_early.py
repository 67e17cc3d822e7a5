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
from study.launch import main
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


def test_a_token_is_used_if_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "auth_token"))
    monkeypatch.setenv("RAY_AUTH_MODE", "")  # restored after the test
    monkeypatch.delenv("RAY_AUTH_MODE")
    early.use_token()
    assert "RAY_AUTH_MODE" not in os.environ
    (tmp_path / "auth_token").write_text("0" * 64)
    early.use_token()
    assert os.environ["RAY_AUTH_MODE"] == "token"


def test_an_error_in_the_background_is_raised_where_ray_is_needed(
    monkeypatch: pytest.MonkeyPatch, no_ray: None
) -> None:
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


def test_an_address_without_a_cluster_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_ray: None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    # Otherwise, a token of the user would set the mode of Ray for all later tests.
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert main(["--methods", "sgc-ncm", "--dataset", "debian", "--address", "127.0.0.1:1"]) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert "no Ray cluster at --address 127.0.0.1:1" in error


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
