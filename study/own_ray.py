"""Start a Ray of our own on this machine, in the background, and end it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any
from unittest.mock import patch

import ray
from ray._private import parameter
from ray._private.node import Node

PRIVATE = "hagmeta_launch"  # a resource that marks a Ray started by a launch
PRELOADED = "study.preload"  # the module that workers import when they start
THREADS = "OMP_NUM_THREADS"
MOST_IDLE_SECONDS = 120  # until Ray ends a worker without work; its default is one second


class OwnRay:
    """A Ray that starts in a thread, so that the caller can prepare the study meanwhile."""

    def __init__(self, environment: Mapping[str, Any], threads: int) -> None:
        """Begin to start Ray.

        Args:
            environment: What workers need to find our code; ``env_vars`` are their environment variables.
            threads: The number of threads of a worker, for libraries that ask only when they are loaded.
        """
        self.environment = environment
        self._variables = {THREADS: os.environ.get(THREADS, str(threads)), **environment["env_vars"]}
        self.was_awaited = False
        self._tune = ExitStack()
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
        if not self.was_awaited:
            self._tune.enter_context(_variables_inherited())
        self.was_awaited = True

    def end(self) -> None:
        """Shut Ray down; if it is still starting, wait for that."""
        self._ready.wait()
        self._tune.close()
        ray.shutdown()
        self._over.set()

    def _run(self) -> None:
        try:
            self._start()
        except BaseException as error:  # raised again in `wait`
            self._error = error
            with suppress(Exception):
                ray.shutdown()
        finally:
            self._ready.set()
        # Linux ends the processes of Ray with the thread that has started them, so this thread stays.
        self._over.wait()

    def _start(self) -> None:
        with _lean(self._variables):
            ray.init(
                address="local",  # never reuse a Ray that someone else runs here, without our MPS
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=False,
                resources={PRIVATE: 1},
                _system_config={
                    "preload_python_modules": [PRELOADED],
                    # Workers wait for the first trial while data is prepared; then those without one end.
                    "idle_worker_killing_time_threshold_ms": 1000 * MOST_IDLE_SECONDS,
                    "num_workers_soft_limit": 0,
                },
            )


@contextmanager
def _lean(variables: dict[str, str]) -> Iterator[None]:
    """Let `ray.init` use parameters of Ray for which it has no arguments.

    Autoscaler, log forwarding and web server take 2.7 s of CPU time, and one machine needs none of them.
    Workers inherit the variables of their raylet. With a runtime environment instead, each worker would start
    two processes, and only after a trial has asked for it.
    """
    without: dict[str, Any] = {"no_monitor": True, "include_log_monitor": False}
    lean = partial(parameter.RayParams, **without, env_vars=variables)
    # `create`: another version of Ray may have no such method.
    without_server = patch.object(Node, "start_api_server", _start_nothing, create=True)
    with patch.object(parameter, "RayParams", lean), without_server:
        yield


def _start_nothing(node: Node, **_: object) -> None:
    """Take the place of a method that starts a process."""


@contextmanager
def _variables_inherited() -> Iterator[None]:
    """Keep Tune from giving variables to its actors: workers with other variables would have to start first.

    Workers have inherited the variables of this process, which include those that Tune passes on.
    """
    from ray.tune.execution import class_cache  # imports Tune, which takes a second: only when it is needed

    none: dict[str, str] = {}
    with (
        patch.object(class_cache, "DEFAULT_ENV_VARS", none, create=True),
        patch.object(class_cache, "ENV_VARS_TO_PROPAGATE", none, create=True),
    ):
        yield
