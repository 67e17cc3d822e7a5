"""Copies of the working tree, in which faults are tested."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from tests.faults.fault import ROOT, Fault

SURVIVED = "SURVIVED"
NAMED, WHOLE = 600.0, 7200.0  # seconds that some tests or a whole suite may take
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--color=no")
FIRST = re.compile(r"^(?:FAILED|ERROR) (\S+?::.+?|\S+)(?: - .*)?$", re.MULTILINE)


class StoppedError(Exception):
    """The tests could not run as they should. The message says why."""


class Copy:
    """A copy of the working tree, in which one fault at a time is tested."""

    running: ClassVar[set[subprocess.Popen[str]]] = set()  # of all copies, to stop them

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tree"
        listed = ["git", "-C", str(ROOT), "ls-files", "-coz", "--exclude-standard"]
        for name in subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0"):
            if name and (ROOT / name).is_file():  # a tracked file may be deleted in the working tree
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self.folder / name)
        own = {"PYTHONPATH": str(self.folder), "HAGMETA_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
        self.environment = {**os.environ, **own}

    def first_failure(self, options: Sequence[str], seconds: float = NAMED) -> str | None:
        """Run pytest with ``options``. Return the first test that fails, or None if all pass.

        Raises:
            StoppedError: No test could run, for example because a module cannot be imported.
        """
        command = [sys.executable, *PYTEST, *options]
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # so that `stop` ends the processes that tests start
        )
        self.running.add(process)
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return f"{options[-1]}, which did not end"
        finally:
            stop(process)
            self.running.discard(process)
        found = FIRST.search(output)
        if process.returncode == 0:
            return None
        if process.returncode != 1 or found is None or "::" not in found[1]:
            raise StoppedError(f"{shlex.join(command)} could not run its tests:\n{output[-3000:]}")
        return found[1]

    def tested(self, fault: Fault, options: Sequence[str], suite: Sequence[str]) -> tuple[str, float]:
        """Return the first test that fails with ``fault``, or SURVIVED, and the seconds.

        Args:
            fault: The fault. It is only in the copy, and only during this call.
            options: The options of pytest with the tests that should find it.
            suite: The options of pytest for a second run if it survives, or nothing.
        """
        start, path = time.monotonic(), self.folder / fault.path
        original = path.read_text()
        try:
            self._write(path, fault.put_into(original))
            found = self.first_failure(options)
            if found is None and suite:
                found = self.first_failure(suite, WHOLE)
        except StoppedError as error:
            raise StoppedError(f"{fault.name}: {error}") from None
        finally:
            self._write(path, original)
        return found or SURVIVED, time.monotonic() - start

    @staticmethod
    def _write(path: Path, source: str) -> None:
        path.write_text(source)
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)  # it may look up to date


def stop(process: subprocess.Popen[str]) -> None:
    """End a process and its children."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
