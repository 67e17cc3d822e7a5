"""NVIDIA's MPS, started and stopped with a study; its program is a stand-in that notes what it is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hagmeta.common.errors import UserError
from study.running import mps
from tests.waiting import HANG

STAND_IN = """#!/bin/sh
echo "$*|$(test "$1" = -d || cat)|$CUDA_MPS_PIPE_DIRECTORY|$CUDA_VISIBLE_DEVICES" >> "$TOLD"
test "$1" != -d || touch "$CUDA_MPS_PIPE_DIRECTORY/control"
exit ${STATUS:-0}
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the stand-in was told, a line a call: arguments, input, folder of pipes, visible GPUs."""
    program = tmp_path / mps.PROGRAM
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.delenv(mps.PIPES, raising=False)
    monkeypatch.delenv(mps.LOGS, raising=False)
    monkeypatch.setattr(mps, "USUAL_PIPES", str(tmp_path / "usual"))
    return tmp_path / "told"


def test_the_daemon_serves_what_is_started_within_and_ends_with_it(told: Path) -> None:
    with mps.daemon():
        pipes = os.environ[mps.PIPES]
        assert told.read_text() == f"-d||{pipes}|\n"  # it sees all GPUs: workers name theirs among all
        assert len(pipes) < 60 and Path(os.environ[mps.LOGS]).is_dir()
        inherited = subprocess.run(["printenv", mps.PIPES], capture_output=True, text=True, check=True)
        assert inherited.stdout.strip() == pipes
    assert told.read_text().splitlines()[1:] == [f"|quit -t 10|{pipes}|1"]
    assert mps.PIPES not in os.environ and mps.LOGS not in os.environ and not Path(pipes).exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_the_daemon_is_stopped_after_an_error_and_ctrl_c(told: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), mps.daemon():
        raise error
    assert "quit" in told.read_text()


@pytest.mark.parametrize("where", ["usual", "of its own"])
def test_a_daemon_that_runs_already_is_used_and_left_running(
    told: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    pipes = told.parent / where
    pipes.mkdir()
    (pipes / "control").touch()
    if where != "usual":
        monkeypatch.setenv(mps.PIPES, str(pipes))
    with mps.daemon():
        assert os.environ.get(mps.PIPES, str(pipes)) == str(pipes)
    assert not told.exists()


def test_a_daemon_that_does_not_start_is_said(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATUS", "3")
    with pytest.raises(UserError, match="exit status 3"), mps.daemon():
        pytest.fail("nothing may run without it")
    assert mps.PIPES not in os.environ


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UserError, match="--mps needs a GPU"):
        mps.check()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=mps.PROGRAM):
        mps.check()


@pytest.mark.skipif(
    not torch.cuda.is_available() or not shutil.which(mps.PROGRAM), reason="needs a GPU and NVIDIA's MPS"
)
def test_processes_compute_under_the_real_daemon() -> None:
    program = "import torch; print(torch.ones(1000, device='cuda').sum().item())"
    with mps.daemon():
        both = [
            subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        assert [each.communicate(timeout=HANG)[0].strip() for each in both] == ["1000.0", "1000.0"]
        servers = subprocess.run(
            [mps.PROGRAM], input="get_server_list\n", capture_output=True, text=True, check=True
        )
        assert servers.stdout.strip()
