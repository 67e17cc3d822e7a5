"""What NLA, TLA and GPIL are worth: the paper's Table 3, its eight combinations, on one dataset.

python benchmarks/ablation.py [--dataset debian] [--seeds 10] [--quick] [--set KEY=VALUE ...]
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hagmeta import datasets
from hagmeta.__main__ import check_writable, choose_device, write_json
from hagmeta.config import RunConfig, parse_seeds, parse_settings
from hagmeta.display import percent
from hagmeta.errors import UserError
from hagmeta.home import home
from hagmeta.pipeline import Record, run

QUICK = {"episodes": 200, "pretrain_epochs": 100, "finetune_steps": 10}


def row(records: list[Record]) -> list[str]:
    last = len(records[0]["accuracy"]) - 1
    columns = [[record["accuracy"][session] for record in records] for session in (0, last)]
    return [percent(column) for column in columns] + [
        percent([r[key] for r in records]) for key in ("pd", "rpd")
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="debian")
    parser.add_argument("--seeds", help="10 (the first ten), 0-9 or 1,4,7; default: 10, with --quick 3")
    parser.add_argument("--quick", action="store_true", help="a first look: fewer seeds, episodes and steps")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other setting")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all the records")
    options = parser.parse_args()
    settings = {"dataset": options.dataset, **(QUICK if options.quick else {}), **parse_settings(options.set)}
    seeds = parse_seeds(options.seeds or ("3" if options.quick else "10"))
    device = choose_device(options.device)
    if options.json:
        check_writable(options.json)
    dataset = datasets.load(options.dataset, home() / "data")
    console = Console(highlight=False)
    changed = ", ".join(f"{key} {value}" for key, value in settings.items() if key != "dataset")
    console.print(f"{dataset.name}, {len(seeds)} seeds, on {device}; {changed or 'default settings'}")
    every: list[Record] = []
    start = time.perf_counter()
    table = Table(title=f"Ablation on {dataset.name}; {changed or 'default settings'}")
    for column in ("GPIL", "NLA", "TLA"):
        table.add_column(column, justify="center")
    for column in ("first session", "last session", "PD", "RPD"):
        table.add_column(column, justify="right")
    for gpil, nla, tla in itertools.product((False, True), repeat=3):
        config = RunConfig.from_mapping({**settings, "gpil": gpil, "nla": nla, "tla": tla})
        records = run(config, seeds, dataset=dataset, device=device, cache=home() / "pretrained")
        every += records
        marks = ["yes" if on else "" for on in (gpil, nla, tla)]
        table.add_row(*marks, *row(records))
        console.print(f"{len(every)}/{8 * len(seeds)} runs, {time.perf_counter() - start:.0f} s")
        if options.json:
            write_json(options.json, every)
    table.caption = f"mean ± 95 % interval over {len(seeds)} seeds, percent"
    console.print(table)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
