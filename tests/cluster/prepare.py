"""Install what the tests of this folder need, or print in one line what is missing.

    python -m tests.cluster.prepare

Without this, pytest would skip the tests, and `make test-cluster` would succeed without a test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.cluster.machines import PACKAGES, ROOT, lacking, missing

POLICY = Path("/usr/sbin/policy-rc.d")  # Debian asks it whether a package may start its service


def main() -> None:
    if packages := {PACKAGES[program] for program in missing(PACKAGES)}:
        _install_programs(sorted(packages))
    if not find_spec("aiohttp_cors"):
        _run([sys.executable, "-m", "pip", "install", "-qq", "-c", "constraints.txt", "-e", ".[cluster]"])
    if reason := lacking(PACKAGES):
        _stop(reason)


def _install_programs(packages: list[str]) -> None:
    if os.geteuid() or not shutil.which("apt-get"):
        _stop(f"install the packages {', '.join(packages)}, or run it as root on Debian or Ubuntu")
    with _no_services():
        _run(["apt-get", "update", "-qq"])
        _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages])


@contextmanager
def _no_services() -> Iterator[None]:
    """Let packages start no service: this machine needs no SSH server."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _run(command: list[str]) -> None:
    print(f"$ {' '.join(command)}", flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        _stop(f"{' '.join(command[:3])} failed: {last}")


def _stop(reason: str) -> None:
    sys.exit(f"error: the cluster tests cannot run: {reason}")


if __name__ == "__main__":
    main()
