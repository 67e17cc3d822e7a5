"""Run searches: sample, choose the best, and confirm it on fresh seeds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from hagmeta.common.errors import UserError
from study.carry_out import carry_out, finished, lent, share_out, start, tell_of_checkpoints
from study.loggers import make_loggers
from study.naming import counted, wrapped
from study.options import LaunchOptions
from study.plan import make_plan
from study.progress import StudyProgress, average_validation, best_validation
from study.resources import count_lanes, uses_gpu
from study.search import confirmation, files
from study.search.confirmation import Choice
from study.search.history import SearchHistory, open_histories
from study.space import Space
from study.store import Store


def run_and_confirm(space: Space, store: Store, options: LaunchOptions, console: Console) -> int:
    """Search for each configuration, run the best of each on test streams with fresh seeds.

    Returns:
        The exit status: 0 if every sample and run has finished, otherwise 1.
    """
    began = time.monotonic()
    for line in store.scan().aside:
        console.print(f"note: moved a record aside, to run it again: {line}", style="yellow", soft_wrap=True)
    histories = open_histories(space, store)
    _describe(space, histories, console)
    if any(history.missing for history in histories):
        _run_searches(histories, store, options, console)
    files.write(histories, store)
    left = sum(len(history.missing) for history in histories)
    if left:
        console.print(f"{counted(left, 'sample')} left; continue with: {options.command}", soft_wrap=True)
        return 1
    failed = _show_failures(histories, store, options, console)
    if options.time_budget is not None:
        left_over = max(1.0, options.time_budget - (time.monotonic() - began))
        options = replace(options, time_budget=left_over)
    status = _confirm(space, histories, store, options, console)
    return 1 if failed else status


def show(space: Space, store: Store, console: Console) -> None:
    """Print what a launch would search, without making anything."""
    histories = open_histories(space, store)
    _describe(space, histories, console)
    for history in histories:
        head = f"{history.cell.title}: {len(history.found)} done; varies "
        print(wrapped(head, [dimension.key for dimension in history.cell.dimensions], console.width))


def _describe(space: Space, histories: Sequence[SearchHistory], console: Console) -> None:
    """Print the number of searches and samples, and how many are done."""
    assert space.search is not None
    console.print(space.title, style="bold")
    searches = "1 search" if len(histories) == 1 else f"{len(histories)} searches"
    samples = counted(space.search.samples, "sample")
    samples += f" in groups of {space.search.group}" if space.search.group > 1 else ""
    given = len(space.search.start)
    samples += f", with {counted(given, 'starting point')}" if given else ""
    done = sum(len(history.found) for history in histories)
    left = sum(len(history.missing) for history in histories)
    console.print(f"{searches} of {samples}: {done} done, {left} to go")


def _run_searches(
    histories: Sequence[SearchHistory], store: Store, options: LaunchOptions, console: Console
) -> None:
    loggers = make_loggers(options.log, store, console)
    configs = [history.cell.config for history in histories]
    cluster = start(options, console, configs)
    lanes = count_lanes(cluster, options.gpus_per_trial, options.cpus_per_trial, options.max_concurrent)
    packing = options.packing(lanes, on_gpu=uses_gpu(cluster, options.gpus_per_trial))
    most = packing.largest if packing.mixes else 0
    largest = [history.cell.largest(most) for history in histories if history.missing]
    resources = share_out(largest, cluster, options)
    from study.search import running  # imports Ray, which takes seconds: only after the message above
    from study.tuning import StudyRunner, TrialOptions

    seeds = len(histories[0].cell.seeds)
    units = [history.cell.unit for history in histories for _ in range(history.runs_left)]
    console.print(f"{counted(seeds, 'seed')} per sample; {resources}")
    tell_of_checkpoints(store, options, console)
    done_before = sum(history.runs for history in histories)
    in_words = best_validation if len(histories) == 1 else average_validation
    with StudyProgress(console, units, done_before, in_words) as progress:
        how = TrialOptions(
            retries=options.retries,
            time_budget=options.time_budget,
            eager=options.eager,
            lent=lent(configs, options),
        )
        runner = StudyRunner(store, resources, progress, how, loggers)
        running.run_searches(histories, runner, store, packing, progress)


def _show_failures(
    histories: Sequence[SearchHistory], store: Store, options: LaunchOptions, console: Console
) -> int:
    """Print which searches lack samples and why; return the number of failed samples."""
    for history in histories:
        if history.failed:
            count = "all samples" if not history.found else counted(len(history.failed), "sample")
            reasons = "; ".join(dict.fromkeys(history.failed.values()))
            line = f"{history.cell.title}: {count} failed: {reasons}"
            console.print(line, style="bold red", soft_wrap=True)
    failed = sum(len(history.failed) for history in histories)
    if failed:
        console.print(f"logs: {store.failures}", soft_wrap=True)
    if any(history.failed.keys() - history.hopeless for history in histories):
        console.print(f"run only these again: {options.command}", soft_wrap=True)
    return failed


def _confirm(
    space: Space, histories: Sequence[SearchHistory], store: Store, options: LaunchOptions, console: Console
) -> int:
    """Run the best sample of each search on fresh seeds, in one plan, and return the exit status."""
    choices = confirmation.choices_of(histories)
    if not choices:
        raise UserError(f"all samples of {space.name} failed; see the tracebacks in {store.failures}.")
    for choice in choices:
        _show_choice(choice, console)
    confirmation.write_best(space, choices, store)
    fresh = confirmation.fresh_seeds(space.seeds)
    place = store.folder / "best.yaml"
    console.print(f"confirming on test streams with {len(fresh)} fresh seeds ({place}):", soft_wrap=True)
    overlapping = confirmation.overlaps(choices, space.seeds)
    for line in overlapping:
        console.print(f"note: {line}", style="yellow", soft_wrap=True)
    chosen = [choice.config for choice in choices]
    scan = store.scan()
    done = finished(scan.done, chosen, store, options.save_embeddings) | scan.diverged
    plan = make_plan(chosen, fresh, done, options.packing())
    summary = confirmation.summary(space, histories, choices, overlapping)
    chosen_for = {choice.history.cell.config: choice.config for choice in choices}
    designs = [design.with_configs(chosen_for) for design in space.designs]
    return carry_out(plan, done, space, store, options, console, summary, designs)


def _show_choice(choice: Choice, console: Console) -> None:
    """Print the chosen values in one line."""
    found = f"best of {counted(len(choice.history.found), 'sample')}"
    found += f", validation {100 * choice.validation:.1f} %"
    values = ", ".join(f"{key} {_rounded(value)}" for key, value in choice.values.items())
    console.print(f"{choice.history.cell.title}: {found}: {values}", soft_wrap=True)


def _rounded(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
