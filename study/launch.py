"""Launch a study: plan all runs of a search space, subtract the finished ones, run the rest.

python study/launch.py --space ablation --quick
"""

from __future__ import annotations

import argparse
import errno
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # instead of study/: this file is run as a script, from anywhere

from rich.console import Console

from hagmeta.common.command import parse_seeds, parse_settings, show_error
from hagmeta.common.differences import varied
from hagmeta.common.errors import UserError
from hagmeta.common.home import make_home
from hagmeta.config import RunConfig, remarks
from hagmeta.pipeline import check_features
from hagmeta.protocol import ProtocolSettings
from hagmeta.protocol.splits import make_split
from study import data, mps
from study import space as spaces
from study.carry_out import carry_out, finished
from study.cost import in_words, total_seconds
from study.errors import LaunchBroken
from study.options import read_options
from study.plan import Plan, make_plan
from study.remote import Mirror
from study.signals import Stopped, stopped_by_signals
from study.store import Store

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
KEPT = "Finished runs are kept; the same command goes on from here."


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    console = Console(highlight=False, markup=False, emoji=False)
    try:
        with stopped_by_signals():
            options = read_options(arguments, __doc__)
            if options.list:
                _list(console)
                return 0
            return _launch(options, console)
    except UserError as error:
        show_error(error)
        return 2
    except Stopped as stopped:
        with suppress(OSError):  # the terminal may be gone
            console.print(f"stopped by {stopped}. {KEPT}", style="bold red")
        return stopped.status
    except LaunchBroken as error:
        show_error(UserError(f"{error} {KEPT}"))
        return 1
    except Exception as error:
        reason = _of_the_disk(error)
        if reason is None:
            raise
        show_error(UserError(f"{reason}: {options.results} or $HAGMETA_HOME. {KEPT}"))
        return 1


def _of_the_disk(error: BaseException | None) -> str | None:
    """What the disk has to say, where it is behind an error: Tune and Optuna raise errors of their own."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            return error.strerror
        if isinstance(error, sqlite3.OperationalError) and "disk" in str(error):
            return str(error)
        error = error.__cause__ or error.__context__
    return None


def _launch(options: argparse.Namespace, console: Console) -> int:
    if options.mps and not options.dry_run:
        mps.check()
    if not options.dry_run:
        make_home()
    space = spaces.read(
        options.space,
        quick=options.quick,
        datasets=options.dataset or (),
        seeds=None if options.seeds is None else parse_seeds(options.seeds),
        settings=parse_settings(options.set),
    )
    graphs = _check_data(space.resolved)
    _check_snapshot(space.resolved, options.save_embeddings)
    if options.dry_run:
        with _results(options.results, space.name, graphs, console, locked=False) as store:
            return _dry_run(space, store, options, console)
    with _results(options.results, space.name, graphs, console) as store, _mps(options):
        if space.search is not None:
            from study.search import workflow

            return workflow.run_and_confirm(space, store, options, console)
        scan = store.scan()
        for line in scan.aside:
            console.print(f"set aside, to be run again: {line}", style="yellow")
        done = finished(scan.done, space.resolved, store, options.save_embeddings)
        plan = make_plan(space.resolved, space.seeds, done, options.seeds_per_trial, 1)
        _describe(plan, space, console)
        return carry_out(plan, done, space, store, options, console)


def _dry_run(space: spaces.Space, store: Store, options: argparse.Namespace, console: Console) -> int:
    if space.search is not None:
        from study.search import workflow  # Optuna takes a second to import: not before it is needed

        workflow.show(space, store, console)
        return 0
    done = finished(store.scan(set_aside=False).done, space.resolved, store, options.save_embeddings)
    plan = make_plan(space.resolved, space.seeds, done, options.seeds_per_trial, 1)
    _describe(plan, space, console)
    settings = {config.hash(): config.canonical() for config in plan.configs}
    keys = varied(list(settings.values())) or ["dataset"]
    for trial in plan.trials:
        values = settings[trial.config.hash()]
        text = " ".join(f"{key}={values[key]}" for key in keys if key in values)
        # Not through the console: it takes half a millisecond a line, and there may be thousands.
        print(f"  {trial.name}: {text} seeds {_seeds(trial.seeds)}")
    return 0


@contextmanager
def _results(
    results: str, study: str, graphs: Mapping[str, str], console: Console, *, locked: bool = True
) -> Iterator[Store]:
    """The study's folder. One in a bucket is brought here first, and copied back."""
    if "://" not in results:
        store, mirror = Store(Path(results) / study, graphs=graphs), None
    else:
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


def _check_snapshot(configs: Sequence[RunConfig], snapshot: int | None) -> None:
    for config in configs:
        if snapshot is not None and config.sessions is not None and snapshot > config.sessions:
            raise UserError(
                f"--save-embeddings is {snapshot}; on {config.dataset}, {config.n_way}-way, "
                f"there are sessions 0 to {config.sessions}."
            )


def _check_data(configs: Sequence[RunConfig]) -> dict[str, str]:
    """Find classes that are too small or too few, and features of another kind, now: not in every trial.

    Returns the fingerprint of each dataset.
    """
    graphs = {}
    names = [item.name for item in fields(ProtocolSettings)]
    by_dataset: dict[str, set[tuple[Any, ...]]] = {}
    for config in configs:
        drawn_by = tuple(getattr(config, name) for name in names)
        by_dataset.setdefault(config.dataset, set()).add(drawn_by)
    for name in sorted(by_dataset, reverse=True):  # the one that was loaded last is still there
        dataset = data.load(name)
        for config in configs:
            if config.dataset == name:
                check_features(config, dataset)
        for values in by_dataset[name]:
            make_split(dataset, ProtocolSettings(**dict(zip(names, values, strict=True))), 0)
        graphs[name] = dataset.fingerprint
    return graphs


def _describe(plan: Plan, space: spaces.Space, console: Console) -> None:
    console.print(f"{space.name}: {space.description}", style="bold")
    finished = plan.total - plan.missing
    console.print(
        f"{plan.total} runs ({len(plan.configs)} configurations x {len(plan.seeds)} seeds): "
        f"{finished} done, {plan.missing} to go"
    )
    for note in sorted({note for config in plan.configs for note in remarks(config)}):
        console.print(f"note: {note}", style="yellow")


def _seeds(seeds: Sequence[int]) -> str:
    return ",".join(map(str, seeds))


def _list(console: Console) -> None:
    for name in spaces.names():
        whole, quick = spaces.read(name), spaces.read(name, quick=True)
        console.print(f"{name}: {whole.description}", style="bold")
        console.print(f"    {_size(whole)}; --quick: {_size(quick)}")
    console.print("Times are those of one CPU core, and rough.")


def _size(space: spaces.Space) -> str:
    seconds, seeds = total_seconds(space.resolved, len(space.seeds)), len(space.seeds)
    if space.search:
        samples, searches = space.search.samples, len(space.configs)
        many = f"{searches} searches x " if searches > 1 else ""
        return f"{many}{samples} samples x {seeds} seeds, {in_words(seconds * samples)}"
    return f"{len(space.configs) * seeds} runs, {in_words(seconds)}"


if __name__ == "__main__":
    sys.exit(main())
