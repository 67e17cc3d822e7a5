"""Launch a study: plan all runs of a space and run those that are missing.

``study/launch.py`` and ``hagmeta.study`` both call `launch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from hagmeta.common.command import plain_console
from hagmeta.common.errors import UserError
from hagmeta.common.files.home import make_home
from hagmeta.config.remarks import remarks
from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.run import check_features
from hagmeta.scenarios import ProtocolSettings
from hagmeta.scenarios.splits import make_split
from study import early
from study.execution import Launch, run, start_ray
from study.finish import finish
from study.options import LaunchOptions
from study.planning import data
from study.planning.cost import TimeLeft, counts, rough_text
from study.planning.packing import MOST_SEEDS, Packing
from study.planning.plan import Plan, finished, make_plan
from study.planning.plugin_changes import check_unchanged
from study.running import added_metrics as measuring
from study.running import mps
from study.space import spaces as spaces
from study.space.design import in_words
from study.space.spaces import Space
from study.store.store import Scan, Store
from study.terminal.naming import counted, names_of, settings_text, wrapped
from study.terminal.progress import show_state

OPTIONS_OF_RUNS = {
    "--drop-small": "--set drop_small=true",
    "--k-shot": "k_shot",
    "--classes B T E": "classes",
}


@dataclass(frozen=True)
class StudyOutcome:
    """The result of a launch."""

    status: int  # 0: all runs are finished; 1: some failed or are left
    folder: Path  # the study: records, predictions, report


def launch(
    space: str | Path | Mapping[str, Any] | None,
    options: LaunchOptions,
    graphs: Mapping[str, Dataset] | None = None,
    console: Console | None = None,
) -> StudyOutcome:
    """Run the missing runs of a study.

    Args:
        space: The name of a search space, a YAML file, or a mapping with the content of such a file. None
            to compare ``options.methods``.
        options: How to launch it.
        graphs: Graphs in memory, by their names in ``options.datasets`` or in the space.
        console: Where to print progress; by default, standard output.

    Returns:
        The exit status and the folder of the study.

    Raises:
        UserError: The study cannot run as requested; nothing has started.
        LaunchBroken: Ray has died or does not start. Finished runs are kept.
        KeyboardInterrupt: The user has stopped the launch. Finished runs are kept, and its Ray has ended.
    """
    console = console or plain_console()
    with data.lending(graphs or {}):
        options = replace(options, metrics=measuring.names_of(options.metrics))
        study = _read(space, options)
        with _opened(study, options, console) as store:
            if options.dry_run:
                _show(study, store, options, console)
                return StudyOutcome(0, store.folder)
            found = _plan(study, store, options, console)
            if found is None:
                return StudyOutcome(1, store.folder)
            store.write_launch(_record(found, study, options))
            if found.plan.missing:
                cluster = start_ray(found.plan.configs, options, console)
                run(found, cluster, store, options, console)
            return StudyOutcome(finish(found, study, store, options, console), store.folder)


def _read(space: str | Path | Mapping[str, Any] | None, options: LaunchOptions) -> Space:
    if (space is None) != bool(options.methods):
        raise UserError("a study needs either a space or methods to compare; give exactly one of them.")
    if options.mps and not options.dry_run:
        mps.check()
    if not options.dry_run:
        make_home()
    if space is None:
        return spaces.of_methods(
            options.methods,
            options.datasets,
            name=options.name,
            seeds=options.seeds,
            settings=options.settings,
        )
    return spaces.read(
        space,
        name=options.name,
        quick=options.quick,
        datasets=options.datasets,
        seeds=options.seeds,
        settings=options.settings,
    )


@contextmanager
def _opened(space: Space, options: LaunchOptions, console: Console) -> Iterator[Store]:
    """Check the data and open the folder of the study; at the end, shut down the Ray of this launch."""
    _check_snapshot(space.resolved, options.save_embeddings)
    with nullcontext() if options.dry_run else _ending_ray(options, space.name):
        graphs = _check_data(space.resolved)
        with _results(options, space.name, graphs, console) as store:
            check_unchanged(store, space.resolved)
            for note in space.notes:
                console.print(f"note: {note}", style="yellow", soft_wrap=True)
            yield store


def _plan(space: Space, store: Store, options: LaunchOptions, console: Console) -> Launch | None:
    """Plan the runs; a search runs its samples first, and then plans those of the best.

    Returns:
        What to run; None if samples of the search are left.
    """
    scan = store.scan()
    for line in scan.aside:
        console.print(f"note: moved a record aside, to run it again: {line}", style="yellow", soft_wrap=True)
    if space.search is not None:
        from study.search import workflow  # imports Optuna, which takes a second: only for searches

        return workflow.search(space, store, options, console)
    done = finished(scan, space.resolved, store, options.save_embeddings)
    plan = make_plan(space.resolved, space.seeds, done, options.packing())
    _describe(plan, space, scan, console)
    return Launch(plan, space.designs, seconds=options.time_budget)


def _record(launch: Launch, space: Space, options: LaunchOptions) -> dict[str, Any]:
    """Return the record of a launch."""
    return {
        **({"search": launch.search} if launch.search else {}),
        "space": space.name,
        "description": space.description,
        "command": options.command,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "configs": {config.hash(): config.canonical() for config in launch.plan.configs},
        "seeds": list(launch.plan.seeds),
        "designs": [design.record() for design in launch.designs],
    }


def _show(space: Space, store: Store, options: LaunchOptions, console: Console) -> None:
    """Print what a launch would run, and what one that runs already is doing."""
    if store.runs.is_dir() and store.is_in_use():
        console.print("a launch is running in this folder:")
        console.print(show_state(store.status) or "no trial has started")
    if space.search is not None:
        from study.search import workflow

        workflow.show(space, store, console)
        _show_designs(space, console)
        return
    scan = store.scan(set_aside=False)
    done = finished(scan, space.resolved, store, options.save_embeddings)
    # Without mixing, because a reader of the plan looks for each configuration.
    separate = Packing(seeds=options.seeds_per_trial or options.members_per_trial or MOST_SEEDS)
    plan = make_plan(space.resolved, space.seeds, done, separate)
    _describe(plan, space, scan, console)
    _show_designs(space, console)
    names = names_of(plan.configs)
    if names.common:
        console.print(f"common values: {settings_text(names.common)}")
    for trial in plan.trials:
        name = names.of([trial.config.canonical()], trial.seeds)
        print(wrapped(f"{trial.name}  ", name, console.width))
    if plan.missing:
        console.print(f"takes {rough_text(counts(plan.trials), TimeLeft(store.latest()))}", soft_wrap=True)


def _show_designs(space: Space, console: Console) -> None:
    """Print the experimental designs of a study."""
    for design in space.designs:
        console.print(f"design: {in_words(design)}")


@contextmanager
def _results(
    options: LaunchOptions, study: str, graphs: Mapping[str, str], console: Console
) -> Iterator[Store]:
    """Yield the store of a study; a bucket is copied to a local folder first, and back at the end."""
    results, locked = options.results, not options.dry_run
    if "://" not in results:
        store, mirror = Store(Path(results) / study, graphs=graphs), None
    else:
        from study.store.remote import Mirror  # imports Arrow: only for buckets

        mirror = Mirror(results, study)
        store = Store(mirror.folder, mirror.send, graphs)
    store.check_path()
    with store.locked() if locked else nullcontext():
        if mirror:
            mirror.fetch(make=locked)
        yield store
        if mirror and locked:
            mirror.send_all()
            console.print(f"copied to {results}", soft_wrap=True)


@contextmanager
def _ending_ray(options: LaunchOptions, study: str) -> Iterator[None]:
    """Shut down the Ray of this launch at the end; MPS, if requested, starts before it and ends after it."""
    with mps.daemon() if options.mps else nullcontext():
        try:
            if options.mps:
                early.begin_ray(options, study)
            yield
        finally:
            early.end_ray()


def _check_snapshot(configs: Sequence[RunConfig], snapshot: int | None) -> None:
    for config in configs:
        if snapshot is not None and config.sessions is not None and snapshot > config.sessions:
            raise UserError(
                f"--save-embeddings is {snapshot}; expected a session from 0 to {config.sessions} "
                f"({config.dataset}, {config.n_way}-way)."
            )


def _check_data(configs: Sequence[RunConfig]) -> dict[str, str]:
    """Check the classes and features of every dataset before any trial starts.

    Returns:
        The fingerprint of each dataset, by its name.
    """
    graphs = {}
    names = [item.name for item in fields(ProtocolSettings)]
    by_dataset: dict[str, set[tuple[Any, ...]]] = {}
    for config in configs:
        drawn_by = tuple(getattr(config, name) for name in names)
        by_dataset.setdefault(config.dataset, set()).add(drawn_by)
    for name in sorted(by_dataset, reverse=True):  # the last dataset loaded is still in memory
        dataset = data.load(name)
        for config in configs:
            if config.dataset == name:
                check_features(config, dataset)
        for values in by_dataset[name]:
            try:
                make_split(dataset, ProtocolSettings(**dict(zip(names, values, strict=True))), 0)
            except UserError as error:
                raise UserError(_as_settings(str(error))) from None
        graphs[name] = dataset.fingerprint
    return graphs


def _as_settings(text: str) -> str:
    """Return an error with settings in place of the options of `hagmeta`, which a launch does not have."""
    for option, setting in OPTIONS_OF_RUNS.items():
        text = text.replace(option, setting)
    return text


def _describe(plan: Plan, space: Space, scan: Scan, console: Console) -> None:
    """Print what the study is, how much of it is done, and notes on its configurations."""
    console.print(space.title, style="bold")
    size = f"{counted(len(plan.configs), 'configuration')} x {counted(len(plan.seeds), 'seed')}"
    diverged = len(plan.keys & scan.diverged)
    done = f"{plan.total - plan.missing - diverged} done, "
    done += f"{diverged} diverged, " * bool(diverged) + f"{plan.missing} to go"
    console.print(f"{counted(plan.total, 'run')} ({size}): {done}")
    for note in sorted({note for config in plan.configs for note in remarks(config)}):
        console.print(f"note: {note}", style="yellow")
