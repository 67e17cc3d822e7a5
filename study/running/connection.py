"""Start Ray on this machine, or connect to a running cluster."""

from __future__ import annotations

import logging
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from hagmeta.common.errors import UserError
from hagmeta.common.files.home import home
from hagmeta.common.plugins.plugins import VARIABLE
from study.running.errors import LaunchBroken
from study.running.own_ray import PRIVATE, OwnRay
from study.running.worker import PACKAGES, import_packages

LEFT_BEHIND = [".git", ".venv", "results", "**/*.partial", "**/__pycache__"]  # not sent to nodes
SETUP_HOOK = f"{import_packages.__module__}.{import_packages.__name__}"
SECONDS_TO_LOOK = 30.0  # time for a node to check whether it has a folder
NOT_OURS = (
    "Ray is already running in this process, without the plug-ins that workers of this study need; "
    "call ray.shutdown() first."
)

_own: OwnRay | None = None  # the Ray that we started, or are starting, on this machine
_sent: dict[str, Any] | None = None  # the worker environment at the cluster to which we connected


def begin_ray(root: Path, plugins: Path | None = None, cpus: float | None = None) -> None:
    """Begin to start Ray on this machine in the background, unless this process has one; `start_ray` waits.

    Args:
        root: The folder of this project, which workers import.
        plugins: The folder with the code that `hagmeta.common.plugins.plugins.stage` has copied for workers.
        cpus: CPUs per trial; None for 1.
    """
    global _own
    environment = _environment(None, root, plugins)
    if _own is not None and _own.environment != environment:
        end_ray()
    if _own is None and not ray.is_initialized():
        _own = OwnRay(environment, max(1, int(cpus or 1)))


def is_up() -> bool:
    """Return whether this process uses Ray already; one in the background counts from `start_ray` on."""
    return ray.is_initialized() if _own is None else _own.was_awaited


def start_ray(
    address: str | None,
    root: Path,
    say: Callable[[str], object] = lambda text: None,
    plugins: Path | None = None,
    cpus: float | None = None,
) -> dict[str, float]:
    """Connect to a cluster, or start Ray on this machine.

    Args:
        address: The address of a running cluster; None to start Ray on this machine.
        root: The folder of this project, which workers import.
        say: Prints a line.
        plugins: The folder with the code that `hagmeta.common.plugins.plugins.stage` has copied for workers.
        cpus: CPUs per trial; None for 1.

    Returns:
        The resources of the cluster.
    """
    if address:
        return _connect(address, _environment(address, root, plugins), say)
    begin_ray(root, plugins, cpus)
    if _own is not None:
        _own.wait()
    elif plugins:
        raise UserError(NOT_OURS)
    return dict(ray.cluster_resources())


def _connect(address: str, environment: dict[str, Any], say: Callable[[str], object]) -> dict[str, float]:
    global _sent
    if environment != _sent:
        end_ray()
    if ray.is_initialized():  # since an earlier call, or by the user
        if _sent is None and VARIABLE in environment["env_vars"]:
            raise UserError(NOT_OURS)
        return dict(ray.cluster_resources())
    if address != "auto":
        # Ray would retry for minutes.
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=5).close()
    stopping = signal.getsignal(signal.SIGTERM)
    context = ray.init(
        address=address, runtime_env=environment, log_to_driver=False, logging_level=logging.ERROR
    )
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stopping)  # Ray has replaced it
    _sent = environment
    found = dict(ray.cluster_resources())
    if PRIVATE in found:
        end_ray()
        raise UserError(
            f"--address {address} is the Ray of another launch and ends with it. Remove --address, or "
            "start a cluster with ray start --head."
        )
    if context.dashboard_url:
        say(f"dashboard: http://{context.dashboard_url}")
    return found


def end_ray() -> None:
    """Shut down the Ray that we started, or disconnect from a cluster; a Ray of the user keeps running."""
    global _own, _sent
    if _own is not None:
        _own.end()
    elif _sent is not None:
        ray.shutdown()
    _own = _sent = None


def _environment(address: str | None, root: Path, plugins: Path | None) -> dict[str, Any]:
    """Return the runtime environment in which workers find this project and its plug-ins.

    Workers on this machine use a checkout in place, or the installation of this process. Other machines get
    a copy of the whole checkout, or of the installed packages of this project.

    Args:
        address: The address of a running cluster; None for this machine.
        root: The folder with our packages: a checkout, or an installation.
        plugins: The folder of staged plug-ins. Workers on this machine use its path, others a copy.
    """
    environment: dict[str, Any] = {"worker_process_setup_hook": SETUP_HOOK}
    checkout = (root / "pyproject.toml").exists()
    variables = {VARIABLE: plugins.name} if plugins else {}
    if not address:
        found = [str(root)] * checkout + ([str(plugins.parent.absolute())] if plugins else [])
        if found:
            paths = [*found, *filter(None, [os.environ.get("PYTHONPATH")])]
            variables |= {"PYTHONPATH": os.pathsep.join(paths)}
        return environment | {"env_vars": variables}
    if "HAGMETA_HOME" in os.environ:
        variables |= {"HAGMETA_HOME": str(home().absolute())}
    if checkout:
        environment["working_dir"] = str(root)
    sent = [] if checkout else [str(root / name) for name in PACKAGES]
    sent += [str(plugins.absolute())] if plugins else []
    if sent:
        environment["py_modules"] = sent
    return environment | {"excludes": LEFT_BEHIND, "env_vars": variables}


def check_alive() -> None:
    """Raise `LaunchBroken` if the Ray process on this machine has died: no trial could start any more."""
    here = ray.get_runtime_context().get_node_id()
    if not any(node["Alive"] for node in ray.nodes() if node["NodeID"] == here):
        raise LaunchBroken("the Ray process on this machine (raylet) has died: killed, or out of memory.")


def node_resources() -> list[dict[str, float]]:
    """Return the total resources of each node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def all_see(folder: Path) -> bool:
    """Return whether all nodes share this folder, not just a folder with the same name."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".seen-") as file:
        looks = [
            ray.remote(num_cpus=0, max_retries=0)(os.path.exists)
            .options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
            .remote(file.name)
            for node in ray.nodes()
            if node["Alive"]
        ]
        try:
            return all(ray.get(looks, timeout=SECONDS_TO_LOOK))
        except ray.exceptions.RayError:  # a node is gone, or too busy to answer
            return False


def why_nothing_runs(asked: Mapping[str, float], nodes: Sequence[Mapping[str, float]]) -> str | None:
    """Return why no trial runs, or None if trials only need more time to start.

    Args:
        asked: The resources that a trial needs.
        nodes: The total resources of each node.
    """
    if any(all(node.get(name, 0) >= amount for name, amount in asked.items()) for node in nodes):
        if any(PRIVATE in node for node in nodes):
            return None
        return (
            f"no trial is running: others use the cluster. A trial needs {_in_words(asked)}; see ray status."
        )
    has = "; ".join(sorted({_in_words(node) for node in nodes}))
    return (
        f"no trial is running: a trial needs {_in_words(asked)}, but the nodes have {has}. A growing cluster "
        "may take minutes; otherwise lower --cpus-per-trial or --gpus-per-trial."
    )


def _in_words(resources: Mapping[str, float]) -> str:
    there = [f"{resources[name]:g} {name}" for name in ("CPU", "GPU") if resources.get(name)]
    return " and ".join(there) or "none"
