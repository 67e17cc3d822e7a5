"""Does a search with the pruner choose as well, and what does it save?

    python benchmarks/pruning.py --results FOLDER                 # both searches, then a table
    python benchmarks/pruning.py --results FOLDER --only pruned   # one of them, then the table

The searches are those of ``--space tune`` for two methods, with enough seeds for the pruner to decide. Both
have the same random samples at the beginning and confirm their choices on the same fresh seeds. Run seconds
are those of the search's records: the share of each run in the time of its pack. The last lines prune the
samples of the whole search in random orders: how often is another one chosen? Options that are not listed
go to ``study/launch.py``, such as ``--mps`` or ``--set episodes=100``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import optuna
import yaml
from optuna.trial import FrozenTrial, create_trial
from rich import box
from rich.console import Console
from rich.table import Table

from hagmeta.common.records.records import Record
from study.search.pruning import is_worse, stages
from study.store import Store

ROOT = Path(__file__).resolve().parent.parent
PRUNERS = {"whole": "none", "pruned": "wilcoxon"}


def write_space(path: Path, pruner: str, options: argparse.Namespace) -> None:
    space = yaml.safe_load((ROOT / "search_spaces" / "tune.yaml").read_text())
    # As when it was measured: held-out classes, and no starting points.
    del space["quick"], space["search"]["start"]
    space |= {"datasets": [options.dataset], "seeds": options.seeds, "fixed": {"val_classes": "half"}}
    space["grid"]["method"] = options.methods.split(",")
    space["search"] |= {"samples": options.samples, "pruner": pruner}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(space, sort_keys=False))


def search(name: str, options: argparse.Namespace, others: list[str]) -> None:
    """Launch a search; it has an own home, so that it does not find the pre-trained encoders of the other."""
    folder = options.results.resolve()
    write_space(folder / f"{name}.yaml", PRUNERS[name], options)
    command = [sys.executable, str(ROOT / "study" / "launch.py"), "--space", str(folder / f"{name}.yaml")]
    start = time.perf_counter()
    subprocess.run(
        [*command, "--results", str(folder), "--no-report", *others],
        env={**os.environ, "HAGMETA_HOME": str(folder / f"home-{name}")},
        check=True,
    )
    (folder / f"{name}.seconds").write_text(f"{time.perf_counter() - start:.1f}")


def show(folder: Path, console: Console) -> None:
    table = Table(box=box.SIMPLE, padding=(0, 1))
    for column in ("search", "method", "samples", "pruned", "runs", "run seconds", "validation", "test last"):
        table.add_column(column, justify="left" if column in ("search", "method") else "right", no_wrap=True)
    table.add_column("test average", justify="right", no_wrap=True)
    chosen = []
    for name in PRUNERS:
        if not (folder / name / "launches").is_dir():
            continue
        store = Store(folder / name)
        launches = [json.loads(path.read_text()) for path in store.launches.glob("*.json")]
        launch = max(launches, key=lambda launch: launch["time"])
        records = store.records()
        for cell in launch["search"]["cells"]:
            table.add_row(name, cell["method"], *_row(cell, records, launch["seeds"]))
            chosen.append(f"{name} {cell['method']}: {cell['values']}")
        console.print(f"{name}: {(folder / f'{name}.seconds').read_text()} s in all")
    console.print(table)
    for line in chosen:
        console.print(line, soft_wrap=True)


def replay(folder: Path, console: Console) -> None:
    """Prune the samples of the whole search in 100 random orders, and compare the choices."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for path in sorted(Store(folder / "whole").searches.glob("*.json")):
        content = json.loads(path.read_text())
        samples = [
            create_trial(value=sample["objective"], intermediate_values=dict(enumerate(sample["by_seed"])))
            for sample in content["samples"]
            if sample["state"] == "complete"
        ]
        found = [_pruned_in_order(random.Random(order).sample(samples, len(samples))) for order in range(100)]
        best = max(value_of(sample) for sample in samples)
        losses = [best - value_of(chosen) for chosen, _ in found]
        same, runs = sum(loss == 0 for loss in losses), mean(share for _, share in found)
        console.print(
            f"{path.stem}, {len(samples)} samples in 100 orders: {same} times the same choice, "
            f"{100 * mean(losses):.2f} points lost on average, at most {100 * max(losses):.2f}; "
            f"{100 * runs:.0f} % of the runs",
            soft_wrap=True,
        )


def _pruned_in_order(samples: list[FrozenTrial]) -> tuple[FrozenTrial, float]:
    """Return the chosen sample and the share of the runs that were needed; the first is never pruned."""
    seeds = len(samples[0].intermediate_values)
    whole: list[FrozenTrial] = []
    runs = 0
    for sample in samples:
        scores = [(value, value) for _, value in sorted(sample.intermediate_values.items())]
        ends = stages(seeds)[:-1] if whole else ()
        end = next((end for end in ends if is_worse(scores[:end], whole)), seeds)
        whole += [sample] if end == seeds else []
        runs += end
    return max(whole, key=value_of), runs / (seeds * len(samples))


def value_of(sample: FrozenTrial) -> float:
    return float(sample.value or 0)


def _row(cell: Mapping[str, Any], records: list[Record], fresh: list[int]) -> list[str]:
    own = [record for record in records if record["config"]["method"] == cell["method"]]
    samples = [record for record in own if record["config"]["val_classes"]]
    tests = [r for r in own if r["config_hash"] == cell["chosen"] and r["seed"] in fresh]
    seconds = sum(sum(record["seconds"].values()) for record in samples)
    last = [record["macro_accuracy"][-1] for record in tests]
    average = [mean(record["macro_accuracy"]) for record in tests]
    return [
        str(cell["found"]),
        str(cell["pruned"]),
        str(len(samples)),
        f"{seconds:.0f}",
        f"{100 * cell['validation']:.1f}",
        *(f"{100 * mean(values):.1f} ± {100 * stdev(values):.1f}" for values in (last, average)),
    ]


def main() -> None:
    summary, _, usage = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=usage, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--only", choices=list(PRUNERS))
    parser.add_argument("--show", action="store_true", help="only print the table of finished searches")
    parser.add_argument("--dataset", default="debian")
    parser.add_argument("--methods", default="hag-meta,posterior-means")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=10)
    options, others = parser.parse_known_args()
    for name in () if options.show else [options.only] if options.only else PRUNERS:
        search(name, options, others)
    console = Console(width=140)
    show(options.results, console)
    if (options.results / "whole").is_dir():
        replay(options.results, console)


if __name__ == "__main__":
    main()
