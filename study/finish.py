"""Finish a launch: print its results and what is left, and write the report."""

from __future__ import annotations

import shutil
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from hagmeta.common.errors import UserError
from study.execution import Launch
from study.options import LaunchOptions
from study.running.added_metrics import measure
from study.space.spaces import Space
from study.store.store import Store
from study.terminal.display import study_table
from study.terminal.naming import counted

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
    return 1 if failed or left or launch.failed else 0


def _list_failures(title: str, lines: Sequence[str], store: Store, console: Console) -> None:
    console.print(title, style="bold red")
    for line in lines[:MOST_FAILURES]:
        console.print(f"  {line}", soft_wrap=True)
    if len(lines) > MOST_FAILURES:
        console.print(f"  and {len(lines) - MOST_FAILURES} more in {store.failures}", soft_wrap=True)


def _report(store: Store, options: LaunchOptions, console: Console) -> None:
    from analysis.page.write import write_report  # imports pandas and seaborn, which takes seconds

    page = write_report([store.folder], store.folder / "report", force=True)
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
