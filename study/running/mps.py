"""Start NVIDIA's Multi-Process Service (MPS): trials on a shared GPU compute at the same time."""

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
USUAL_PIPES = "/tmp/nvidia-mps"  # the default of CUDA
QUIT_SECONDS = 10  # then the daemon ends clients that still run


def check() -> None:
    """Refuse ``--mps`` on a machine that cannot run the daemon."""
    if not torch.cuda.device_count():
        raise UserError("--mps needs a GPU, but torch finds none on this machine; remove --mps.")
    if not shutil.which(PROGRAM):
        raise UserError(
            f"--mps needs {PROGRAM} on the PATH; install it with the NVIDIA driver, or remove --mps."
        )


@contextmanager
def daemon() -> Iterator[None]:
    """Run a daemon for all processes started in the context; use a running one and leave it running."""
    if (Path(os.environ.get(PIPES, USUAL_PIPES)) / "control").exists():
        yield
        return
    before = {name: os.environ.get(name) for name in (PIPES, LOGS)}
    # Not in TMPDIR: the path of a socket is limited to about a hundred characters.
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
    # The daemon numbers only the GPUs that it sees, while workers use the numbers of all GPUs.
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    output = folder / "output"  # not a pipe, which the daemon would keep open
    with output.open("w") as file:
        done = subprocess.run([PROGRAM, "-d"], env=environment, stdout=file, stderr=file, check=False)
    if done.returncode:
        reason = " ".join(output.read_text(errors="replace").split()) or f"exit status {done.returncode}"
        raise UserError(f"--mps: {PROGRAM} -d failed: {reason}. Remove --mps to run without it.")


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
        print(f"note: {PROGRAM} does not answer; its daemon may still be running", flush=True)
