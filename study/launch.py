"""Launch a study: plan all runs of a search space, subtract the finished ones, run the rest.

python study/launch.py --space ablation --quick
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # instead of study/: this file is run as a script, from anywhere

from rich.console import Console

from hagmeta import datasets
from hagmeta.command import Parser, show_error
from hagmeta.config import RunConfig, parse_seeds, parse_settings
from hagmeta.errors import UserError
from hagmeta.home import home
from hagmeta.pipeline import remarks, resolve
from hagmeta.splits import make_split
from study import space as spaces
from study.display import study_table
from study.plan import Plan, Trial, make_plan
from study.progress import StudyProgress
from study.resources import Resources, choose_resources
from study.store import Store


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    console = Console(highlight=False)
    try:
        options = _options(arguments)
        if options.list:
            _list(console)
            return 0
        return _launch(options, console)
    except UserError as error:
        show_error(error)
        return 2
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on from here", style="bold red")
        return 130


def _launch(options: argparse.Namespace, console: Console) -> int:
    space = spaces.read(
        options.space,
        quick=options.quick,
        datasets=options.dataset or (),
        seeds=parse_seeds(options.seeds) if options.seeds else None,
        settings=parse_settings(options.set),
    )
    space = _with_data(space, console)
    configs = [resolve(config) for config in space.configs]
    _check_data(configs)
    store = Store(Path(options.results) / space.name)
    if space.search is not None:
        return _search(space, store, options, console)
    if options.dry_run:
        plan = make_plan(configs, space.seeds, store.scan().done, options.seeds_per_trial, 1)
        _describe(plan, space, console)
        for trial in plan.trials:
            console.print(f"  {trial.name}: {_short(trial.config, configs)} seeds {_seeds(trial.seeds)}")
        return 0
    with store.locked():
        scan = store.scan()
        for line in scan.aside:
            console.print(f"set aside, to be run again: {line}", style="yellow", markup=False)
        plan = make_plan(configs, space.seeds, scan.done, options.seeds_per_trial, 1)
        _describe(plan, space, console)
        if plan.missing:
            plan = _run(plan, scan.done, store, options, console)
        return _summarise(plan, store, options, console)


def _search(space: spaces.Space, store: Store, options: argparse.Namespace, console: Console) -> int:
    """Search, then run the best configuration on the test streams with seeds that the search never saw."""
    from study import search

    assert space.search is not None
    search.check_search(space)
    console.print(f"[bold]{space.name}[/]: {space.description}")
    if options.dry_run:
        console.print(f"{space.search.samples} samples over {', '.join(d.key for d in space.sample)}")
        return 0
    with store.locked():
        study = search.open_study(space, store)
        left = search.samples_left(space, study)
        console.print(f"{space.search.samples} samples: {space.search.samples - left} done, {left} to go")
        if left:
            plan = Plan(space.configs, space.seeds, (Trial(space.configs[0], space.seeds),) * left)
            resources = _start(plan, options)
            console.print(f"{len(space.seeds)} seeds a sample; {resources}")
            with StudyProgress(console, plan) as progress:
                search.run_search(
                    space,
                    store,
                    study,
                    resources,
                    progress,
                    retries=options.retries,
                    time_budget=options.time_budget,
                )
        best, validation = search.best_config(space, store)
        chosen, fresh = search.confirmation(space, best, store)
        console.print(f"best of {len(study.trials)} samples by validation, {100 * validation:.1f} %:")
        for dimension in space.sample:
            console.print(f"  {dimension.key}: {getattr(best, dimension.key)}")
        for key, share in search.importances(study).items():
            console.print(f"  importance of {key}: {share:.2f}")
        console.print(f"on test streams with {len(fresh)} fresh seeds ({store.folder / 'best.yaml'}):")
        done = store.scan().done
        plan = make_plan([chosen], fresh, done, options.seeds_per_trial, 1)
        if plan.missing:
            plan = _run(plan, done, store, options, console)
        return _summarise(plan, store, options, console)


def _run(
    plan: Plan, done: set[tuple[str, int]], store: Store, options: argparse.Namespace, console: Console
) -> Plan:
    from study import tuning  # Ray takes seconds to import: not before it is needed

    resources = _start(plan, options)
    plan = make_plan(plan.configs, plan.seeds, done, options.seeds_per_trial, resources.slots)
    console.print(f"{len(plan.trials)} trials; {resources}")
    with StudyProgress(console, plan) as progress:
        tuning.run_plan(
            plan, store, resources, progress, retries=options.retries, time_budget=options.time_budget
        )
    return plan


def _start(plan: Plan, options: argparse.Namespace) -> Resources:
    """Start Ray or reach a running one, and share out what it has."""
    import torch

    from study import tuning

    try:
        cluster = tuning.start_ray(options.address, ROOT)
    except (OSError, ValueError, RuntimeError) as error:  # ConnectionError and TimeoutError are OSErrors
        reason = str(error).splitlines()[0]
        raise UserError(f"no Ray cluster at --address {options.address}: {reason}") from None

    infos = [datasets.describe(name, home() / "data") for name in {c.dataset for c in plan.configs}]
    own = torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else 16e9
    return choose_resources(
        cluster,
        infos,
        options.seeds_per_trial or 10,
        options.cpus_per_trial,
        options.gpus_per_trial,
        options.max_concurrent,
        own,
    )


def _with_data(space: spaces.Space, console: Console) -> spaces.Space:
    """Datasets that are not to be had move to the fallback, once, before anything starts."""
    for name in sorted({config.dataset for config in space.configs}):
        try:
            datasets.load(name, home() / "data")
        except UserError as error:
            if space.fallback is None:
                raise
            reason = str(error).split(". ")[0]
            console.print(
                f"{name} is not to be had ({reason}). Running on {space.fallback} instead.",
                style="bold yellow",
                markup=False,
            )
            space = spaces.replace_dataset(space, name, space.fallback)
    return space


def _check_data(configs: Sequence[RunConfig]) -> None:
    """Find classes that are too small or too few now, not in every trial."""
    by_dataset: dict[str, set[RunConfig]] = {}
    for config in configs:
        by_dataset.setdefault(config.dataset, set()).add(replace(config, gpil=True, nla=True, tla=True))
    for name, different in by_dataset.items():
        dataset = datasets.load(name, home() / "data")
        for config in different:
            make_split(dataset, config, 0)


def _describe(plan: Plan, space: spaces.Space, console: Console) -> None:
    console.print(f"[bold]{space.name}[/]: {space.description}")
    finished = plan.total - plan.missing
    console.print(
        f"{plan.total} runs ({len(plan.configs)} configurations x {len(plan.seeds)} seeds): "
        f"{finished} done, {plan.missing} to go"
    )
    for note in sorted({note for config in plan.configs for note in remarks(config)}):
        console.print(f"note: {note}", style="yellow")


def _summarise(plan: Plan, store: Store, options: argparse.Namespace, console: Console) -> int:
    records = [r for r in store.records() if (r["config_hash"], r["seed"]) in plan.keys]
    if records:
        console.print(study_table(records))
    console.print(f"records: {store.runs}")
    finished = {(r["config_hash"], r["seed"]) for r in records}
    failed = sorted(
        key for key in plan.keys - finished if (store.failures / key[0] / f"{key[1]}.json").exists()
    )
    left = len(plan.keys) - len(finished) - len(failed)
    command = shlex.join(["python", *sys.argv])
    if failed:
        console.print(f"{len(failed)} runs failed; their tracebacks:", style="bold red")
        for config, seed in failed[:20]:
            console.print(f"  {store.failures / config / f'{seed}.json'}", markup=False)
        console.print(f"run just those again: {command}", markup=False)
    if left:
        console.print(f"{left} runs are left; go on with: {command}", markup=False)
    return 1 if failed or left else 0


def _short(config: RunConfig, configs: Sequence[RunConfig]) -> str:
    """The settings in which this configuration differs from another of the study that has them, too."""
    values = config.canonical()
    others = [other.canonical() for other in configs]
    varied = [key for key in values if any(key in other and other[key] != values[key] for other in others)]
    return " ".join(f"{key}={values[key]}" for key in varied) or config.dataset


def _seeds(seeds: Sequence[int]) -> str:
    return ",".join(map(str, seeds))


def _list(console: Console) -> None:
    for name in spaces.names():
        space, quick = spaces.read(name), spaces.read(name, quick=True)
        runs = f"{len(space.configs) * len(space.seeds)} runs, quick {len(quick.configs) * len(quick.seeds)}"
        if space.search:
            runs = f"{space.search.samples} samples x {len(space.seeds)} seeds"
        console.print(f"[bold]{name}[/] ({runs}): {space.description}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="python study/launch.py", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--space", metavar="NAME|FILE", help="a search space by name (see --list) or a YAML file")
    add("--list", action="store_true", help="list the search spaces")
    add("--dataset", action="append", metavar="NAME", help="instead of the space's; there is no fallback")
    add("--seeds", metavar="SEEDS", help="10 (the first ten), 0-9 or 1,4,7")
    add("--seeds-per-trial", default="auto", metavar="auto|n", help="seeds that run as one pack")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="fix a setting of every run")
    add("--quick", action="store_true", help="the space's small version, for a first look")
    add("--dry-run", action="store_true", help="print what would run, and start nothing")
    add("--results", default="results", metavar="DIR", help="folder of studies (default: results)")
    add("--address", metavar="auto|ray://...", help="a running Ray cluster; by default this machine")
    add("--cpus-per-trial", metavar="n", help="default: 1")
    add("--gpus-per-trial", default="auto", metavar="auto|f", help="share of a GPU, 1/n")
    add("--max-concurrent", metavar="n", help="at most so many trials at once")
    add("--retries", default="2", metavar="n", help="tries after a failure (default: 2)")
    add("--time-budget", metavar="2h", help="stop after so long; the same command goes on from there")
    options = parser.options(arguments)
    if not options.list and not options.space:
        raise UserError(f"--space is missing; one of: {', '.join(spaces.names())}, or a YAML file.")
    if options.dry_run and options.address:
        raise UserError("--dry-run starts nothing, so --address has no meaning with it.")
    options.seeds_per_trial = _number(options.seeds_per_trial, "--seeds-per-trial", int, 1, auto=True)
    options.gpus_per_trial = _number(options.gpus_per_trial, "--gpus-per-trial", float, 0, auto=True)
    options.cpus_per_trial = _number(options.cpus_per_trial, "--cpus-per-trial", float, 0)
    options.max_concurrent = _number(options.max_concurrent, "--max-concurrent", int, 1)
    options.retries = _number(options.retries, "--retries", int, 0)
    options.time_budget = _duration(options.time_budget)
    if "://" in options.results:
        raise UserError(f"--results {options.results}: only folders so far; a shared one (NFS) works.")
    return options


def _number(text: str | None, name: str, kind: type, least: float, *, auto: bool = False) -> Any:
    if text is None or (auto and text == "auto"):
        return None
    try:
        value = kind(text)
        if not least <= value < 1e6:
            raise ValueError
    except ValueError:
        words = ("auto or " if auto else "") + ("a whole number" if kind is int else "a number")
        raise UserError(f"{name} is {text!r}; it must be {words} of at least {least}.") from None
    return value


def _duration(text: str | None) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if not match or not float(match[1]):
        raise UserError(f"--time-budget is {text!r}; give a duration such as 90s, 30m or 2h.")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


if __name__ == "__main__":
    sys.exit(main())
