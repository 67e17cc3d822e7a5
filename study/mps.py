"""NVIDIA's Multi-Process Service: trials that share a GPU compute at once instead of taking turns."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from hagmeta.common.errors import UserError

PROGRAM = "nvidia-cuda-mps-control"
PIPES = "CUDA_MPS_PIPE_DIRECTORY"
LOGS = "CUDA_MPS_LOG_DIRECTORY"
USUAL_PIPES = "/tmp/nvidia-mps"  # where CUDA looks when nothing else is said
QUIT_SECONDS = 10  # then clients that still run are ended


def check() -> None:
    """Refuse where there can be no daemon."""
    if not torch.cuda.device_count():
        raise UserError("--mps is for GPUs, and this machine has none that torch can use; leave --mps out.")
    if not shutil.which(PROGRAM):
        raise UserError(
            f"--mps needs {PROGRAM} on the PATH; it comes with NVIDIA's driver. Or leave --mps out."
        )


@contextmanager
def daemon() -> Iterator[None]:
    """A daemon for all processes started within; one that runs already is used, and left running."""
    if (Path(os.environ.get(PIPES, USUAL_PIPES)) / "control").exists():
        yield
        return
    before = {name: os.environ.get(name) for name in (PIPES, LOGS)}
    # Not in TMPDIR: the folder's path becomes that of a socket, which may have a hundred characters.
    folder = Path(tempfile.mkdtemp(prefix="hagmeta-mps-", dir="/tmp"))
    os.environ |= {PIPES: str(folder), LOGS: str(folder)}
    try:
        _start(folder)
        try:
            yield
        finally:
            _control(f"quit -t {QUIT_SECONDS}")
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path) -> None:
    # The daemon numbers the GPUs that it sees from 0; workers are told their numbers among all.
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    output = folder / "output"  # a file: the daemon would keep a pipe open
    with output.open("w") as file:
        done = subprocess.run([PROGRAM, "-d"], env=environment, stdout=file, stderr=file, check=False)
    if done.returncode:
        said = " ".join(output.read_text(errors="replace").split()) or f"exit status {done.returncode}"
        raise UserError(f"--mps: {PROGRAM} -d did not start: {said}. Leave --mps out to go on without it.")


def _control(command: str) -> None:
    try:
        subprocess.run(
            [PROGRAM],
            input=f"{command}\n",
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=QUIT_SECONDS + 10,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"{PROGRAM} does not answer; its daemon may still run", flush=True)
