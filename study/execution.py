"""Start Ray and run the trials of a plan there."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from hagmeta.common.errors import UserError
from hagmeta.common.files.home import home
from hagmeta.common.plugins import plugins
from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from study import early
from study.options import LaunchOptions
from study.planning import data
from study.planning.cost import TimeLeft
from study.planning.plan import Plan, Trial, make_plan
from study.planning.plugin_changes import plugins_of
from study.planning.resources import Kind, Resources, check_possible, choose_resources, count_lanes, uses_gpu
from study.running.errors import LaunchBroken
from study.running.loggers import make_loggers
from study.space.design import Design
from study.store.store import Store
from study.terminal.naming import counted, names_of
from study.terminal.progress import StudyProgress

ROOT = Path(__file__).resolve().parent.parent
TOKEN = (
    "If the cluster uses a token, this machine needs the same one in ~/.ray/auth_token or RAY_AUTH_TOKEN "
    "(see docs/guides/cluster.md)."
)


@dataclass(frozen=True)
class Launch:
    """What a launch runs on test streams.

    Attributes:
        plan: Its runs.
        designs: The experimental designs that they make up.
        search: How a search has chosen the configurations, for the report.
        failed: Whether samples of the search failed.
        seconds: The time left; None for no limit.
        roles: What configurations of a search are, by hash: tuned or default.
    """

    plan: Plan
    designs: Sequence[Design]
    search: dict[str, Any] | None = None
    failed: bool = False
    seconds: float | None = None
    roles: Mapping[str, str] = field(default_factory=dict)


def start_ray(configs: Iterable[RunConfig], options: LaunchOptions, console: Console) -> dict[str, float]:
    """Start Ray, or connect to a running cluster, with the plug-ins that `configs` need.

    Returns:
        The resources of the cluster.

    Raises:
        UserError: The cluster refuses the launch, or has too few resources.
        LaunchBroken: Ray does not start on this machine.
    """
    if "study.running.connection" not in sys.modules or not sys.modules["study.running.connection"].is_up():
        where = (
            f"connecting to Ray at {options.address}" if options.address else "starting Ray on this machine"
        )
        console.print(f"{where}; this takes a few seconds", soft_wrap=True)
    if options.address:
        early.use_token()
    import ray  # takes seconds to import: only where it is needed

    from study.running import connection

    try:
        needed = {name.rpartition(":")[2] for config in configs for _, name in plugins_of(config)}
        staged = plugins.stage(home() / "plugins", needed | set(options.metrics))
        cluster = connection.start_ray(options.address, ROOT, console.print, staged, options.cpus_per_trial)
    except UserError:
        raise
    except ray.exceptions.RuntimeEnvSetupError as error:
        reason = _first_line(error)
        raise UserError(f"cannot send {ROOT} to the nodes: {reason}") from None
    except ray.exceptions.AuthenticationError as error:
        raise UserError(_first_line(error)) from None
    except Exception as error:  # Ray raises a bare Exception if its process does not start in time
        reason = _first_line(error)
        if not options.address:
            raise LaunchBroken(f"cannot start Ray: {reason}; the machine may be busy.") from None
        if reason.startswith("Failed to connect to Ray cluster"):  # it answers, but refuses
            reason += f". {TOKEN}"
        raise UserError(f"no Ray cluster at --address {options.address}: {reason}") from None
    if not options.address:  # a cluster may still grow
        check_possible(cluster, options.cpus_per_trial, options.gpus_per_trial)
    return cluster


def run(
    launch: Launch, cluster: dict[str, float], store: Store, options: LaunchOptions, console: Console
) -> None:
    """Run the missing runs of a launch; the store then has their records or failures."""
    from study.running import tuning

    plan = launch.plan
    loggers = make_loggers(options.log, store, names_of(plan.configs).of, console)
    lanes = count_lanes(cluster, options.gpus_per_trial, options.cpus_per_trial, options.max_concurrent)
    packing = options.packing(lanes, on_gpu=uses_gpu(cluster, options.gpus_per_trial))
    plan = make_plan(plan.configs, plan.seeds, plan.done, packing)
    resources = share_out(plan.trials, cluster, options)
    console.print(f"{counted(len(plan.trials), 'trial')}; {resources}")
    tell_of_checkpoints(store, options, console)
    done, before = plan.total - plan.missing, TimeLeft(store.latest())
    with StudyProgress(console, plan.trials, done, time_left=before, file=store.status) as progress:
        how = tuning.TrialOptions(
            retries=options.retries,
            time_budget=launch.seconds,
            snapshot=options.save_embeddings,
            eager=options.eager,
            metrics=options.metrics,
            lent=lent(plan.configs, options),
        )
        tuning.StudyRunner(store, resources, progress, how, loggers).run(plan.trials)


def tell_of_checkpoints(store: Store, options: LaunchOptions, console: Console) -> None:
    """Print a note if some nodes cannot read the checkpoints of others."""
    from study.running import connection

    nodes = connection.node_resources() if options.address else []
    if len(nodes) > 1 and not connection.all_see(store.checkpoints):
        text = (
            f"note: not all nodes can read {store.checkpoints.resolve()}, so a trial that moves to another "
        )
        text += "node starts from the beginning. Put --results on a shared disk to continue from checkpoints."
        console.print(text, style="yellow", soft_wrap=True)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def lent(configs: Iterable[RunConfig], options: LaunchOptions) -> dict[str, Dataset]:
    """Return the graphs that workers cannot load: those in memory and, on a cluster, the user's files."""
    names = [config.dataset for config in configs]
    return data.in_memory(names) | (data.own_files(names) if options.address else {})


def share_out(trials: Sequence[Trial], cluster: dict[str, float], options: LaunchOptions) -> Resources:
    """Return the resources of each trial.

    The GPU share is ``options.gpus_per_trial``, or follows from a bound of the memory of each kind of trial.
    """
    shares: float | dict[Kind, float] = options.gpus_per_trial or 0.0
    if options.gpus_per_trial is None and cluster.get("GPU"):
        from study.planning.gpu_memory import gpu_shares

        shares = gpu_shares(trials)
    return choose_resources(cluster, shares, options.cpus_per_trial, options.max_concurrent)
