"""Carry out a plan: write the launch file, run the trials on Ray, print the table, write the report."""

from __future__ import annotations

import shutil
import sys
import webbrowser
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from hagmeta.common.errors import UserError
from hagmeta.common.files.home import home
from hagmeta.common.plugins import plugins
from hagmeta.common.records.records import RunKey
from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from study import data
from study.design import Design
from study.display import study_table
from study.loggers import make_loggers
from study.measuring import measure
from study.naming import counted
from study.options import LaunchOptions
from study.plan import Plan, Trial, make_plan, session_number
from study.plugin_changes import plugins_of
from study.progress import StudyProgress
from study.resources import Kind, Resources, check_possible, choose_resources, count_lanes, uses_gpu
from study.space import Space
from study.store import Store

ROOT = Path(__file__).resolve().parent.parent
MOST_FAILURES = 20  # listed
TOKEN = "If the cluster uses a token, this machine needs the same one (see docs/guides/cluster.md)."


def carry_out(
    plan: Plan,
    done: set[RunKey],
    space: Space,
    store: Store,
    options: LaunchOptions,
    console: Console,
    search: dict[str, Any] | None = None,
    designs: Sequence[Design] | None = None,
) -> int:
    """Run what is missing of a plan, print the results and write the report.

    Args:
        plan: All runs, with trials for those that are missing.
        done: The runs that do not run: they are finished, or they diverged.
        space: The space of the study.
        store: The folder of the study.
        options: The options of the launch.
        console: Where to print.
        search: How a search has chosen the configurations, for the report.
        designs: The designs of the study, if not those of the space.

    Returns:
        The exit status: 0 if every run is finished, otherwise 1.
    """
    _note_launch(plan, space, store, options, search, space.designs if designs is None else designs)
    if plan.missing:
        plan = _run(plan, done, store, options, console)
    measure(options.metrics, store, console)
    sampled = {dimension.key for dimension in space.sample}
    return _summarise(plan, sampled, store, options, console)


def finished(
    done: set[RunKey], configs: Sequence[RunConfig], store: Store, snapshot: int | None
) -> set[RunKey]:
    """Return the runs of `done` that are complete for this launch.

    With a `snapshot` session, a run also needs the embeddings of that session.
    """
    if snapshot is None:
        return done
    sessions = {config.hash(): session_number(config, snapshot) for config in configs}
    return {key for key in done if key[0] in sessions and store.embeddings_of(key, sessions[key[0]]).exists()}


def _note_launch(
    plan: Plan,
    space: Space,
    store: Store,
    options: LaunchOptions,
    search: dict[str, Any] | None,
    designs: Sequence[Design],
) -> None:
    store.write_launch(
        {
            **({"search": search} if search else {}),
            "space": space.name,
            "description": space.description,
            "command": options.command,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "configs": {config.hash(): config.canonical() for config in plan.configs},
            "seeds": list(plan.seeds),
            "designs": [design.record() for design in designs],
        }
    )


def _run(plan: Plan, done: set[RunKey], store: Store, options: LaunchOptions, console: Console) -> Plan:
    loggers = make_loggers(options.log, store, console)
    cluster = start(options, console, plan.configs)
    from study import tuning  # imports Ray, which takes seconds: only after the message above

    lanes = count_lanes(cluster, options.gpus_per_trial, options.cpus_per_trial, options.max_concurrent)
    packing = options.packing(lanes, on_gpu=uses_gpu(cluster, options.gpus_per_trial))
    plan = make_plan(plan.configs, plan.seeds, done, packing)
    resources = share_out(plan.trials, cluster, options)
    console.print(f"{counted(len(plan.trials), 'trial')}; {resources}")
    tell_of_checkpoints(store, options, console)
    with StudyProgress(console, plan.trials, plan.total - plan.missing) as progress:
        how = tuning.TrialOptions(
            retries=options.retries,
            time_budget=options.time_budget,
            snapshot=options.save_embeddings,
            eager=options.eager,
            metrics=options.metrics,
            lent=lent(plan.configs, options),
        )
        tuning.StudyRunner(store, resources, progress, how, loggers).run(plan.trials)
    return plan


def start(options: LaunchOptions, console: Console, configs: Iterable[RunConfig]) -> dict[str, float]:
    """Start Ray, or connect to a running cluster, with the plug-ins that `configs` need.

    Returns:
        The resources of the cluster.
    """
    if "study.connection" not in sys.modules or not sys.modules["study.connection"].is_up():
        where = (
            f"connecting to Ray at {options.address}" if options.address else "starting Ray on this machine"
        )
        console.print(f"{where}; this takes a few seconds", soft_wrap=True)
    import ray  # takes seconds to import: only where it is needed

    from study import connection

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
        where = f"no Ray cluster at --address {options.address}" if options.address else "cannot start Ray"
        reason = _first_line(error)
        if reason.startswith("Failed to connect to Ray cluster"):  # it answers, but refuses
            reason += f". {TOKEN}"
        raise UserError(f"{where}: {reason}") from None
    if not options.address:  # a cluster may still grow
        check_possible(cluster, options.cpus_per_trial, options.gpus_per_trial)
    return cluster


def tell_of_checkpoints(store: Store, options: LaunchOptions, console: Console) -> None:
    """Print a note if some nodes cannot read the checkpoints of others."""
    from study import connection

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
        from study.gpu_memory import gpu_shares

        shares = gpu_shares(trials)
    return choose_resources(cluster, shares, options.cpus_per_trial, options.max_concurrent)


def _summarise(plan: Plan, sampled: set[str], store: Store, options: LaunchOptions, console: Console) -> int:
    """Print the table, failures and what is left, write the report, and return the exit status."""
    records = [record for record in map(store.find, sorted(plan.keys)) if record is not None]
    if records:
        console.print(study_table(records, console.width, sampled))
    others = sum(1 for _ in store.record_files()) - len(records)
    if others and not sampled:
        console.print(
            f"note: the folder has {counted(others, 'other run')} with other settings or seeds; "
            "the report includes them",
            style="yellow",
        )
    console.print(f"records: {store.runs}", soft_wrap=True)
    finished = {(r["config_hash"], r["seed"]) for r in records}
    failed = sorted(
        key for key in plan.keys - finished if (store.failures / key[0] / f"{key[1]}.json").exists()
    )
    left = len(plan.keys) - len(finished) - len(failed)
    logs = {f"{store.failures / config / f'{seed}.json'}": (config, seed) for config, seed in failed}
    reasons = {path: why for path, key in logs.items() if (why := store.why_diverged(key))}
    broken = [path for path in logs if path not in reasons]
    if reasons:
        title = f"{counted(len(reasons), 'run')} diverged (no result; not run again):"
        _list_failures(title, [f"{path}: {why}" for path, why in reasons.items()], store, console)
    if broken:
        _list_failures(f"{counted(len(broken), 'run')} failed; tracebacks:", broken, store, console)
        console.print(f"run only these again: {options.command}", soft_wrap=True)
    if left:
        console.print(f"{counted(left, 'run')} left; continue with: {options.command}", soft_wrap=True)
    if not failed and not left:
        shutil.rmtree(store.checkpoints, ignore_errors=True)
    if records and options.report:
        _report(store, options, console)
    if records and options.with_references:
        compare_with_references(store.folder, console, options.with_references)
    return 1 if failed or left else 0


def _list_failures(title: str, lines: Sequence[str], store: Store, console: Console) -> None:
    console.print(title, style="bold red")
    for line in lines[:MOST_FAILURES]:
        console.print(f"  {line}", soft_wrap=True)
    if len(lines) > MOST_FAILURES:
        console.print(f"  and {len(lines) - MOST_FAILURES} more in {store.failures}", soft_wrap=True)


def _report(store: Store, options: LaunchOptions, console: Console) -> None:
    from analysis.page.write import write_report

    page = write_report([store.folder], store.folder / "report", force=True)
    console.print(f"report: {page}", soft_wrap=True)
    if options.open:
        webbrowser.open(page.resolve().as_uri())


def compare_with_references(folder: Path, console: Console, kind: str) -> None:
    """Compare the study with the reference results, or print why that is not possible."""
    from analysis.references.page import write_comparison
    from analysis.references.words import findings

    try:
        page, placed = write_comparison([folder], folder / "comparison", kind=kind, force=True)
    except UserError as error:
        console.print(f"note: {error}", style="yellow", soft_wrap=True)
        return
    for refusal in placed.refusals:
        console.print(
            f"note: not compared with the references: {refusal.words}", style="yellow", soft_wrap=True
        )
    for finding in findings(placed):
        console.print(finding.text, soft_wrap=True)
    console.print(f"comparison: {page}", soft_wrap=True)
