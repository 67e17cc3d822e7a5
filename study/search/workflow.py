"""Run searches: sample, choose the best, and plan to confirm it on fresh seeds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from hagmeta.common.errors import UserError
from study.execution import Launch, lent, share_out, start_ray, tell_of_checkpoints
from study.options import LaunchOptions
from study.planning.cost import TimeLeft, counts, rough_text
from study.planning.plan import Trial, finished, make_plan
from study.planning.resources import count_lanes, uses_gpu
from study.running.loggers import make_loggers
from study.search import confirmation, files
from study.search.confirmation import Choice
from study.search.history import SearchHistory, open_histories
from study.space.spaces import Space
from study.store.store import Store
from study.terminal.naming import Names, counted, seeds_text, wrapped
from study.terminal.progress import StudyProgress, average_validation, best_validation


def search(space: Space, store: Store, options: LaunchOptions, console: Console) -> Launch | None:
    """Search for each configuration, and plan to run the best of each on test streams with fresh seeds.

    Returns:
        What to run; None if samples are left, because the time was over.
    """
    began = time.monotonic()
    histories = open_histories(space, store)
    _describe(space, histories, console)
    if any(history.missing for history in histories):
        files.write(histories, store)  # a reader of the folder sees that a search has begun
        _run_searches(histories, store, options, console)
    files.write(histories, store)
    left = sum(len(history.missing) for history in histories)
    if left:
        console.print(f"{counted(left, 'sample')} left; continue with: {options.command}", soft_wrap=True)
        return None
    failed = _show_failures(histories, store, options, console)
    confirmed = _confirmation(space, histories, store, options, console)
    budget = options.time_budget
    seconds = None if budget is None else max(1.0, budget - (time.monotonic() - began))
    return replace(confirmed, failed=bool(failed), seconds=seconds)


def show(space: Space, store: Store, console: Console) -> None:
    """Print what a launch would search, without making anything."""
    histories = open_histories(space, store)
    _describe(space, histories, console)
    console.print(_runs_in_words(space, len(histories)))
    for history in histories:
        head = f"{history.cell.title}: {len(history.found)} done; varies "
        print(wrapped(head, [dimension.key for dimension in history.cell.dimensions], console.width))
    if runs := counts(_units(histories)):
        console.print(f"takes {rough_text(runs, TimeLeft(store.latest()))}", soft_wrap=True)


def _runs_in_words(space: Space, searches: int) -> str:
    """Return how many runs the samples are, and then the confirmation of choices and defaults."""
    assert space.search is not None
    samples, seeds, fresh = space.search.samples, len(space.seeds), confirmation.FRESH_SEEDS
    several = f"{searches} searches x " * (searches > 1)
    sampled = f"{several}{counted(samples, 'sample')} x {counted(seeds, 'seed')}"
    return (
        f"{sampled} = {counted(searches * samples * seeds, 'run')}; then {2 * searches} configurations x "
        f"{fresh} fresh seeds = {2 * searches * fresh} runs"
    )


def _units(histories: Sequence[SearchHistory]) -> list[Trial]:
    """Return the runs that searches may need, before the values of their samples are known."""
    return [Trial.of(history.cell.config, range(history.runs_left)) for history in histories]


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
    configs = [history.cell.config for history in histories]
    sampled = dict.fromkeys(item.key for history in histories for item in history.cell.dimensions)
    names = Names([config.canonical() for config in configs], sampled)
    loggers = make_loggers(options.log, store, names.of, console)
    cluster = start_ray(configs, options, console)
    lanes = count_lanes(cluster, options.gpus_per_trial, options.cpus_per_trial, options.max_concurrent)
    packing = options.packing(lanes, on_gpu=uses_gpu(cluster, options.gpus_per_trial))
    most = packing.largest if packing.mixes else 0
    largest = [history.cell.largest(most) for history in histories if history.missing]
    resources = share_out(largest, cluster, options)
    from study.running.tuning import StudyRunner, TrialOptions
    from study.search import running  # imports Ray, which takes seconds: only after the message above

    seeds = len(histories[0].cell.seeds)
    console.print(f"{counted(seeds, 'seed')} per sample; {resources}")
    tell_of_checkpoints(store, options, console)
    done_before = sum(history.runs for history in histories)
    in_words = best_validation if len(histories) == 1 else average_validation
    before = TimeLeft(store.latest())
    with StudyProgress(
        console, _units(histories), done_before, in_words, time_left=before, file=store.status
    ) as progress:
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


def _confirmation(
    space: Space, histories: Sequence[SearchHistory], store: Store, options: LaunchOptions, console: Console
) -> Launch:
    """Plan to run the best sample of each search on fresh seeds."""
    choices = confirmation.choices_of(histories)
    if not choices:
        raise UserError(f"all samples of {space.name} failed; see the tracebacks in {store.failures}.")
    for choice in choices:
        _show_choice(choice, console)
    seen = confirmation.seen_seeds(space, choices, store)
    fresh = confirmation.fresh_seeds([*space.seeds, *seen])
    confirmation.write_best(space, choices, fresh, store)
    place = store.folder / "best.yaml"
    console.print(f"confirming on test streams with {len(fresh)} fresh seeds ({place}):", soft_wrap=True)
    if seen:
        console.print(
            f"note: {seeds_text(seen)} confirmed an earlier choice, so {seeds_text(fresh)} are used",
            style="yellow",
        )
    overlapping = confirmation.overlaps(choices, space.seeds, fresh)
    for line in overlapping:
        console.print(f"note: {line}", style="yellow", soft_wrap=True)
    tested = [config for choice in choices for config in (choice.config, choice.default)]
    done = finished(store.scan(), tested, store, options.save_embeddings)
    plan = make_plan(tested, fresh, done, options.packing())
    summary = confirmation.summary(space, histories, choices, overlapping, seen)
    chosen_for = {choice.history.cell.config: choice.config for choice in choices}
    designs = [design.with_configs(chosen_for) for design in space.designs]
    return Launch(plan, designs, summary, roles=confirmation.roles(choices))


def _show_choice(choice: Choice, console: Console) -> None:
    """Print the chosen values in one line."""
    found = f"best of {counted(len(choice.history.found), 'sample')}"
    found += f", validation {100 * choice.validation:.1f} %"
    if choice.default_validation is not None:
        found += f" (defaults {100 * choice.default_validation:.1f} %)"
    values = ", ".join(f"{key} {_rounded(value)}" for key, value in choice.values.items())
    console.print(f"{choice.history.cell.title}: {found}: {values}", soft_wrap=True)


def _rounded(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
