"""Finish a launch: print its results and what is left, and write the report."""

from __future__ import annotations

import shutil
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hagmeta.common.command import as_typed
from hagmeta.common.errors import UserError
from hagmeta.common.records.records import RunKey
from study.execution import Launch
from study.options import LaunchOptions
from study.planning.plan import Plan
from study.running.added_metrics import measure
from study.space.spaces import Space
from study.store.store import Store
from study.terminal.naming import counted, names_of
from study.terminal.table import study_table

MOST_FAILURES = 20  # listed


def finish(launch: Launch, space: Space, store: Store, options: LaunchOptions, console: Console) -> int:
    """Compute additional metrics, print the table, failures and what is left, and write the report.

    Returns:
        The exit status: 0 if every run is finished, otherwise 1.
    """
    measure(options.metrics, store, console)
    plan, sampled = launch.plan, {dimension.key for dimension in space.sample}
    records = [record for record in map(store.find, sorted(plan.keys)) if record is not None]
    if records:
        console.print(study_table(records, console.width, sampled, launch.roles))
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
    diverged = {key for key in failed if store.why_diverged(key)}
    broken = [key for key in failed if key not in diverged]
    if diverged:
        title = f"{counted(len(diverged), 'run')} diverged (no result; not run again):"
        _list_failures(title, sorted(diverged), plan, store, console)
    if broken:
        _list_failures(f"{counted(len(broken), 'run')} failed:", broken, plan, store, console)
        console.print(f"run only these again: {options.command}", soft_wrap=True)
    if left:
        console.print(f"{counted(left, 'run')} left; continue with: {options.command}", soft_wrap=True)
    if not failed and not left:
        shutil.rmtree(store.checkpoints, ignore_errors=True)
    if records and options.report:
        _report(store, options, console)
    if records and options.with_references:
        compare_with_references(store.folder, console, options.with_references)
    return 1 if failed or left or launch.failed else 0


def _list_failures(title: str, keys: Sequence[RunKey], plan: Plan, store: Store, console: Console) -> None:
    """Print the runs that failed for the same reason in one line, with the file that says more."""
    console.print(title, style="bold red")
    names, configs = names_of(plan.configs), {config.hash(): config for config in plan.configs}
    groups: dict[tuple[str, str], list[int]] = {}
    for config, seed in keys:
        groups.setdefault((config, store.why_failed((config, seed))), []).append(seed)
    for (config, why), seeds in list(groups.items())[:MOST_FAILURES]:
        name = ", ".join(names.of([configs[config].canonical()], seeds))
        console.print(f"  {name}: {why} ({store.failure_file((config, seeds[0]))})", soft_wrap=True)
    if len(groups) > MOST_FAILURES:
        console.print(f"  and {len(groups) - MOST_FAILURES} more in {store.failures}", soft_wrap=True)


def _report(store: Store, options: LaunchOptions, console: Console) -> None:
    from analysis.data.reading import read  # imports pandas, and the others seaborn, which takes seconds
    from analysis.page.page import FINDINGS
    from analysis.page.write import write
    from analysis.report import Report

    console.print("writing the report ...")
    report = Report(read([store.folder]))
    command = f"{as_typed('hagmeta-report')} {store.folder}"
    page = write(report, store.folder / "report", command=command, force=True)
    found = Table.grid(padding=(0, 1, 0, 0))
    for finding in report.findings[:FINDINGS]:
        found.add_row("-", finding.text)
    console.print(found)
    console.print(f"report: {page}", soft_wrap=True)
    if options.open:
        webbrowser.open(page.resolve().as_uri())


def compare_with_references(folder: Path, console: Console, kind: str) -> None:
    """Compare the study with the reference results, or print why that is not possible."""
    from analysis.references.page import write_comparison  # imports pandas and seaborn, which takes seconds
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
