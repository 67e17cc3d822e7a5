"""Launch a study: plan all runs of a search space, subtract the finished ones, run the rest.

python study/launch.py --space ablation --quick
"""

from __future__ import annotations

import argparse
import shlex
import sys
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # instead of study/: this file is run as a script, from anywhere

from rich.console import Console

from hagmeta.common.command import parse_seeds, parse_settings, show_error
from hagmeta.common.differences import varied
from hagmeta.common.errors import UserError
from hagmeta.common.records import RunKey
from hagmeta.config import RunConfig, remarks, resolve
from hagmeta.protocol import ProtocolSettings
from hagmeta.protocol.splits import make_split
from hagmeta.sparse.inputs import check_inputs
from study import data, mps
from study import space as spaces
from study.cost import in_words, total_seconds
from study.display import study_table
from study.options import read_options
from study.plan import Plan, Trial, make_plan, session_number
from study.progress import StudyProgress, best_validation
from study.remote import Mirror
from study.resources import Kind, Resources, choose_resources, count_lanes
from study.store import Store


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    console = Console(highlight=False)
    try:
        options = read_options(arguments, __doc__)
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
    if options.mps and not options.dry_run:
        mps.check()
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
    _check_snapshot(configs, options.save_embeddings)
    if options.dry_run:
        with _results(options.results, space.name, console, locked=False) as store:
            return _dry_run(space, configs, store, options, console)
    with _results(options.results, space.name, console) as store, _mps(options):
        if space.search is not None:
            return _search(space, store, options, console)
        scan = store.scan()
        for line in scan.aside:
            console.print(f"set aside, to be run again: {line}", style="yellow", markup=False)
        done = _finished(scan.done, configs, store, options.save_embeddings)
        plan = make_plan(configs, space.seeds, done, options.seeds_per_trial, 1)
        _describe(plan, space, console)
        return _carry_out(plan, done, space, store, options, console)


def _dry_run(
    space: spaces.Space,
    configs: Sequence[RunConfig],
    store: Store,
    options: argparse.Namespace,
    console: Console,
) -> int:
    if space.search is not None:
        console.print(f"[bold]{space.name}[/]: {space.description}")
        console.print(f"{space.search.samples} samples over {', '.join(d.key for d in space.sample)}")
        return 0
    done = _finished(store.scan(set_aside=False).done, configs, store, options.save_embeddings)
    plan = make_plan(configs, space.seeds, done, options.seeds_per_trial, 1)
    _describe(plan, space, console)
    keys = varied([config.canonical() for config in configs]) or ["dataset"]
    for trial in plan.trials:
        values = trial.config.canonical()
        settings = " ".join(f"{key}={values[key]}" for key in keys if key in values)
        console.print(f"  {trial.name}: {settings} seeds {_seeds(trial.seeds)}", soft_wrap=True)
    return 0


@contextmanager
def _results(results: str, study: str, console: Console, *, locked: bool = True) -> Iterator[Store]:
    """The study's folder. One in a bucket is brought here first, and copied back."""
    if "://" not in results:
        store, mirror = Store(Path(results) / study), None
    else:
        mirror = Mirror(results, study)
        store = Store(mirror.folder, mirror.send)
    with store.locked() if locked else nullcontext():
        if mirror:
            mirror.fetch()
        yield store
        if mirror and locked:
            mirror.send_all()
            console.print(f"copied to {results}", markup=False, soft_wrap=True)


@contextmanager
def _mps(options: argparse.Namespace) -> Iterator[None]:
    """NVIDIA's MPS for Ray's workers, where it is asked for."""
    if not options.mps:
        yield
        return
    with mps.daemon():
        try:
            yield
        finally:
            import ray

            ray.shutdown()  # its workers first: the daemon's end would break them


def _finished(
    done: set[RunKey], configs: Sequence[RunConfig], store: Store, snapshot: int | None
) -> set[RunKey]:
    """Runs that need not run again: where embeddings are asked for, those that have them."""
    if snapshot is None:
        return done
    sessions = {config.hash(): session_number(config, snapshot) for config in configs}
    return {key for key in done if key[0] in sessions and store.embeddings_of(key, sessions[key[0]]).exists()}


def _check_snapshot(configs: Sequence[RunConfig], snapshot: int | None) -> None:
    for config in configs:
        if snapshot is not None and config.sessions is not None and snapshot > config.sessions:
            raise UserError(
                f"--save-embeddings is {snapshot}; on {config.dataset}, {config.n_way}-way, "
                f"there are sessions 0 to {config.sessions}."
            )


def _note_launch(plan: Plan, space: spaces.Space, store: Store) -> None:
    store.write_launch(
        {
            "space": space.name,
            "description": space.description,
            "command": _command(),
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "configs": {config.hash(): config.canonical() for config in plan.configs},
            "seeds": list(plan.seeds),
        }
    )


def _command() -> str:
    """What was typed, as it reads from the project's folder."""
    return shlex.join(["python", "study/launch.py", *sys.argv[1:]])


def _search(space: spaces.Space, store: Store, options: argparse.Namespace, console: Console) -> int:
    """Search, then run the best configuration on the test streams with seeds that the search never saw."""
    from study import search

    assert space.search is not None
    search.check_search(space)
    console.print(f"[bold]{space.name}[/]: {space.description}")
    study = search.open_study(space, store)
    left = search.samples_left(space, study)
    console.print(f"{space.search.samples} samples: {space.search.samples - left} done, {left} to go")
    if left:
        trials = [Trial(space.configs[0], space.seeds)] * left
        done_before = (space.search.samples - left) * len(space.seeds)
        largest = Trial(search.largest_sample(space), space.seeds)
        resources = _share_out([largest], _start(options), options, console)
        console.print(f"{len(space.seeds)} seeds a sample; {resources}")
        with StudyProgress(console, trials, done_before, best_validation) as progress:
            search.run_search(
                space,
                store,
                study,
                resources,
                progress,
                retries=options.retries,
                time_budget=options.time_budget,
                eager=options.eager,
            )
    best, validation = search.best_config(space, store)
    chosen, fresh = search.confirmation(space, best, store)
    console.print(f"best of {len(search.told(study))} samples by validation, {100 * validation:.1f} %:")
    for dimension in space.sample:
        console.print(f"  {dimension.key}: {getattr(best, dimension.key)}")
    for key, share in search.importances(study).items():
        console.print(f"  importance of {key}: {share:.2f}")
    console.print(f"on test streams with {len(fresh)} fresh seeds ({store.folder / 'best.yaml'}):")
    done = _finished(store.scan().done, [chosen], store, options.save_embeddings)
    plan = make_plan([chosen], fresh, done, options.seeds_per_trial, 1)
    return _carry_out(plan, done, space, store, options, console)


def _carry_out(
    plan: Plan,
    done: set[RunKey],
    space: spaces.Space,
    store: Store,
    options: argparse.Namespace,
    console: Console,
) -> int:
    """Note what was asked for, run what is missing of it, and say what came of it."""
    _note_launch(plan, space, store)
    if plan.missing:
        plan = _run(plan, done, store, options, console)
    return _summarise(plan, store, options, console)


def _run(plan: Plan, done: set[RunKey], store: Store, options: argparse.Namespace, console: Console) -> Plan:
    from study import tuning  # Ray takes seconds to import: not before it is needed

    cluster = _start(options)
    lanes = count_lanes(cluster, options.gpus_per_trial, options.cpus_per_trial, options.max_concurrent)
    plan = make_plan(plan.configs, plan.seeds, done, options.seeds_per_trial, lanes)
    resources = _share_out(plan.trials, cluster, options, console)
    console.print(f"{len(plan.trials)} trials; {resources}")
    with StudyProgress(console, plan.trials, plan.total - plan.missing) as progress:
        tuning.run_plan(
            plan,
            store,
            resources,
            progress,
            retries=options.retries,
            time_budget=options.time_budget,
            snapshot=options.save_embeddings,
            eager=options.eager,
        )
    return plan


def _start(options: argparse.Namespace) -> dict[str, float]:
    """Start Ray or reach a running one; returns what it has."""
    from study import tuning

    try:
        return tuning.start_ray(options.address, ROOT)
    except (OSError, ValueError, RuntimeError) as error:  # ConnectionError and TimeoutError are OSErrors
        reason = str(error).splitlines()[0]
        raise UserError(f"no Ray cluster at --address {options.address}: {reason}") from None


def _share_out(
    trials: Sequence[Trial], cluster: dict[str, float], options: argparse.Namespace, console: Console
) -> Resources:
    """What each trial takes: of GPUs what was asked for, or else what its kind needs."""
    shares: float | dict[Kind, float] = options.gpus_per_trial or 0.0
    if options.gpus_per_trial is None and cluster.get("GPU"):
        from study.calibration import gpu_shares

        shares = gpu_shares(trials, console.print, eager=options.eager)
    return choose_resources(cluster, shares, options.cpus_per_trial, options.max_concurrent)


def _with_data(space: spaces.Space, console: Console) -> spaces.Space:
    """Datasets that are not to be had move to the fallback, once, before anything starts."""
    for name in sorted({config.dataset for config in space.configs}):
        try:
            data.load(name)
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
    """Find classes that are too small or too few, and features of another kind, now: not in every trial."""
    by_dataset: dict[str, set[ProtocolSettings]] = {}
    for config in configs:
        drawn_by = {item.name: getattr(config, item.name) for item in fields(ProtocolSettings)}
        by_dataset.setdefault(config.dataset, set()).add(ProtocolSettings(**drawn_by))
    for name in sorted(by_dataset, reverse=True):  # the one that was loaded last is still there
        dataset = data.load(name)
        for inputs in {config.inputs for config in configs if config.dataset == name}:
            check_inputs(inputs, dataset)
        for settings in by_dataset[name]:
            make_split(dataset, settings, 0)


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
        console.print(study_table(records, console.width))
    console.print(f"records: {store.runs}")
    finished = {(r["config_hash"], r["seed"]) for r in records}
    failed = sorted(
        key for key in plan.keys - finished if (store.failures / key[0] / f"{key[1]}.json").exists()
    )
    left = len(plan.keys) - len(finished) - len(failed)
    command = _command()
    if failed:
        console.print(f"{len(failed)} runs failed; their tracebacks:", style="bold red")
        for config, seed in failed[:20]:
            console.print(f"  {store.failures / config / f'{seed}.json'}", markup=False)
        console.print(f"run just those again: {command}", markup=False)
    if left:
        console.print(f"{left} runs are left; go on with: {command}", markup=False)
    if records and not options.no_report:
        _report(store, options, console)
    return 1 if failed or left else 0


def _report(store: Store, options: argparse.Namespace, console: Console) -> None:
    from analysis.report import write_report  # pandas and seaborn take seconds to import

    page = write_report([store.folder], store.folder / "report")
    console.print(f"report: {page}", markup=False)
    if options.open:
        webbrowser.open(page.resolve().as_uri())


def _seeds(seeds: Sequence[int]) -> str:
    return ",".join(map(str, seeds))


def _list(console: Console) -> None:
    for name in spaces.names():
        whole, quick = spaces.read(name), spaces.read(name, quick=True)
        console.print(f"[bold]{name}[/]: {whole.description}")
        console.print(f"    {_size(whole)}; --quick: {_size(quick)}")
    console.print("Times are those of one CPU core, and rough.")


def _size(space: spaces.Space) -> str:
    seconds, seeds = total_seconds(space.configs, len(space.seeds)), len(space.seeds)
    if space.search:
        return f"{space.search.samples} samples x {seeds} seeds, {in_words(seconds * space.search.samples)}"
    return f"{len(space.configs) * seeds} runs, {in_words(seconds)}"


if __name__ == "__main__":
    sys.exit(main())
