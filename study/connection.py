"""A Ray to run on: one of this machine's own, or a cluster that runs already."""

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
from hagmeta.common.home import home
from hagmeta.common.plugins import VARIABLE
from study.errors import LaunchBroken
from study.worker import PACKAGES, import_packages

LEFT_BEHIND = [".git", ".venv", "results", "**/*.partial", "**/__pycache__"]  # of what nodes receive
SETUP_HOOK = f"{import_packages.__module__}.{import_packages.__name__}"
SECONDS_TO_LOOK = 30.0  # whether a node sees a folder
PRIVATE = "hagmeta_launch"  # a resource that marks the Ray of a launch that was given no address

_ours: dict[str, Any] | None = None  # the environment of workers in the Ray that was started here


def start_ray(
    address: str | None,
    root: Path,
    say: Callable[[str], object] = lambda text: None,
    plugins: Path | None = None,
) -> dict[str, float]:
    """Connect to a cluster, or make one of this machine.

    Args:
        address: Of a running cluster; None for one of this machine's own.
        root: The folder of this project, which workers import.
        say: Prints a line.
        plugins: The folder in which `hagmeta.common.plugins.stage` has put code for the workers.

    Returns:
        The resources of the cluster.
    """
    global _ours
    environment = _environment(address, root, plugins)
    if ray.is_initialized() and _ours not in (None, environment):
        end_ray()
    if ray.is_initialized():
        if _ours is None and plugins:
            raise UserError(
                "Ray runs in this process without the plug-ins of this study, which its workers need; "
                "call ray.shutdown() first."
            )
        return dict(ray.cluster_resources())
    if address and address != "auto":
        # Ray itself would go on trying for minutes.
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=5).close()
    stopping = signal.getsignal(signal.SIGTERM)
    context = ray.init(
        address=address or "local",  # not one that happens to run here: it is another's, and without our MPS
        runtime_env=environment,
        log_to_driver=False,
        logging_level=logging.ERROR,
        include_dashboard=None if address else False,
        resources=None if address else {PRIVATE: 1},
    )
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stopping)  # Ray has put its own there
    _ours = environment
    found = dict(ray.cluster_resources())
    if address and PRIVATE in found:
        end_ray()
        raise UserError(
            f"--address {address} is the Ray of another launch, which ends with it. Leave --address out, or "
            "start a cluster with ray start --head."
        )
    if context.dashboard_url:
        say(f"dashboard: http://{context.dashboard_url}")
    return found


def end_ray() -> None:
    """End the Ray that was started here, or leave its cluster; one that the user had started stays."""
    global _ours
    if _ours is not None:
        ray.shutdown()
        _ours = None


def _environment(address: str | None, root: Path, plugins: Path | None) -> dict[str, Any]:
    """Return the runtime environment in which workers find this project and its plug-ins.

    ``root`` is the folder that holds our packages: a checkout, or where they are installed. Workers on this
    machine read a checkout in place, and find an installation as this process does. Other machines get a
    copy: the whole checkout, or only our packages of an installation. ``plugins`` is the folder of staged
    plug-ins, which workers find by path on this machine and by copy on others.
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
    """Give up once Ray knows that its process on this machine has died: no trial could start any more."""
    here = ray.get_runtime_context().get_node_id()
    if not any(node["Alive"] for node in ray.nodes() if node["NodeID"] == here):
        raise LaunchBroken("Ray's process on this machine (raylet) has died: killed, or out of memory.")


def node_resources() -> list[dict[str, float]]:
    """What each node has in all."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def all_see(folder: Path) -> bool:
    """Whether every node has this folder, and not one of its own by that name."""
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
        except ray.exceptions.RayError:  # a node went away, or is too busy to answer
            return False


def why_nothing_runs(asked: Mapping[str, float], nodes: Sequence[Mapping[str, float]]) -> str | None:
    """For trials that wait and wait; None where they need but time to start."""
    if any(all(node.get(name, 0) >= amount for name, amount in asked.items()) for node in nodes):
        if any(PRIVATE in node for node in nodes):
            return None
        return f"nothing runs: others use the cluster; a trial takes {_in_words(asked)} (see ray status)."
    has = "; ".join(sorted({_in_words(node) for node in nodes}))
    return (
        f"nothing runs: each trial takes {_in_words(asked)}, and the nodes have {has}. A cluster that grows "
        "may need minutes; if it does not, ask for less by --cpus-per-trial and --gpus-per-trial."
    )


def _in_words(resources: Mapping[str, float]) -> str:
    there = [f"{resources[name]:g} {name}" for name in ("CPU", "GPU") if resources.get(name)]
    return " and ".join(there) or "none"
