"""Start a Ray of our own on this machine, in the background, and end it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import ray

PRIVATE = "hagmeta_launch"  # a resource that marks a Ray started by a launch
THREADS = "OMP_NUM_THREADS"


class OwnRay:
    """A Ray that starts in a thread, so that the caller can prepare the study meanwhile."""

    def __init__(self, environment: Mapping[str, Any], threads: int) -> None:
        """Begin to start Ray.

        Args:
            environment: The runtime environment in which workers find our code.
            threads: The number of threads of a worker, for libraries that ask only when they are loaded.
        """
        self.environment = environment
        # Not in os.environ: other threads, and programs that they start, would see them.
        variables = {THREADS: os.environ.get(THREADS, str(threads)), **environment["env_vars"]}
        self._whole = {**environment, "env_vars": variables}
        self.was_awaited = False
        self._error: BaseException | None = None
        self._ready, self._over = threading.Event(), threading.Event()
        threading.Thread(target=self._run, name="ray", daemon=True).start()

    def wait(self) -> None:
        """Wait until Ray has started; raise the error if it has not."""
        self._ready.wait()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))  # Ray has replaced it
        if self._error is not None:
            raise self._error
        self.was_awaited = True

    def end(self) -> None:
        """Shut Ray down; if it is still starting, wait for that."""
        self._ready.wait()
        ray.shutdown()
        self._over.set()

    def _run(self) -> None:
        try:
            ray.init(
                address="local",  # never reuse a Ray that someone else runs here, without our MPS
                runtime_env=self._whole,
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=False,
                resources={PRIVATE: 1},
            )
        except BaseException as error:  # raised again in `wait`
            self._error = error
            with suppress(Exception):
                ray.shutdown()
        finally:
            self._ready.set()
        # Linux ends the processes of Ray with the thread that has started them, so this thread stays.
        self._over.wait()
