"""How long does a study take from the command to its first training step, and how much work is that?

    git worktree add ../before COMMIT
    python benchmarks/startup.py [../before] [--space smoke] [--turns 5] [--option=--mps ...]

Launches of both checkouts take turns. A turn has two launches of each: a cold one with an empty HAGMETA_HOME,
then a warm one that finds prepared data and pre-trained encoders there. The first step
follows the start of a trial, the loading of its data and its preparation, as the trial reports them. CPU time
includes all processes of Ray; other programs on the machine change it little.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil

ROOT = Path(__file__).resolve().parent.parent
SECONDS_BETWEEN_LOOKS = 0.2


class Launch(NamedTuple):
    """The seconds of one launch."""

    first_step: float  # from the command on
    total: float
    cpu: float  # CPU time of all its processes until the first step


def launch(checkout: Path, space: str, home: Path, options: list[str]) -> Launch:
    """Run a study of `checkout` in a new folder, with downloads and the like in `home`."""
    environment = os.environ | {
        "HAGMETA_HOME": str(home),
        "PYTHONPATH": str(checkout),
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "0",  # Tune then writes what trials report
    }
    with tempfile.TemporaryDirectory() as results:
        command = [sys.executable, str(checkout / "study" / "launch.py"), "--space", space, "--no-report"]
        began = time.time()
        process = subprocess.Popen(
            [*command, "--results", results, *options],
            env=environment,
            stdout=subprocess.DEVNULL,
            cwd=results,
        )
        used = _watch(process)
        total = time.time() - began
        assert process.returncode == 0, f"exit status {process.returncode}"
        first = min(map(_first_step, Path(results).glob("*/tune/*/result.json")))
    return Launch(first - began, total, max(cpu for moment, cpu in used if moment <= first))


def _watch(process: subprocess.Popen[bytes]) -> list[tuple[float, float]]:
    """Return the CPU seconds of a process and all below it, at many moments until it ends."""
    by_process: dict[int, float] = {}
    used = [(0.0, 0.0)]
    while process.poll() is None:
        with suppress(psutil.Error):
            top = psutil.Process(process.pid)
            for each in (top, *top.children(recursive=True)):
                with suppress(psutil.Error):
                    times = each.cpu_times()
                    by_process[each.pid] = times.user + times.system
        used.append((time.time(), sum(by_process.values())))
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return used


def _first_step(path: Path) -> float:
    """Return when a trial took its first step, in seconds since the epoch."""
    report, records = read_report(path)
    # A record has its seed's share of the seconds of its pack.
    prepared = sum(record["seconds"]["prepare"] for record in records)
    return float(report["started"] + report["load_seconds"] + prepared) if records else float("inf")


def read_report(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the last report of a trial to Tune, and the records of its runs; none if it failed."""
    report: dict[str, Any] = json.loads(path.read_text().splitlines()[-1])
    if "started" not in report:
        return report, []
    spec = report["config"]["spec"]
    if "members" in spec:
        runs = [(spec["configs"][place], seed) for place, seed in spec["members"]]
    else:  # of an older checkout
        runs = [(spec["config"], seed) for seed in spec["seeds"]]
    records = _records(path.parents[2] / "runs")
    return report, [records[_key(config, seed)] for config, seed in runs]


@cache
def _records(folder: Path) -> dict[str, dict[str, Any]]:
    records = [json.loads(path.read_text()) for path in folder.glob("*/*.json")]
    return {_key(record["config"], record["seed"]): record for record in records}


def _key(config: dict[str, Any], seed: int) -> str:
    return json.dumps([config, seed], sort_keys=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", nargs="?", type=Path, help="another checkout")
    parser.add_argument("--space", default="smoke", help="a name, or a YAML file (default: smoke)")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--option", action="append", default=[], help="of study/launch.py; can be repeated")
    options = parser.parse_args()
    space = str(Path(options.space).resolve()) if Path(options.space).exists() else options.space
    checkouts = {"now": ROOT} | ({"before": options.before.resolve()} if options.before else {})
    found: dict[tuple[str, str], list[Launch]] = {}
    for turn in range(options.turns):
        for name in list(checkouts)[:: 1 if turn % 2 else -1]:  # which goes first changes from turn to turn
            with tempfile.TemporaryDirectory() as home:
                for state in ("cold", "warm"):
                    seconds = launch(checkouts[name], space, Path(home), options.option)
                    found.setdefault((name, state), []).append(seconds)
                    print(f"{name}, {state}: {_in_words(seconds)}", flush=True)
    for (name, state), launches in sorted(found.items()):
        median = Launch(*map(statistics.median, zip(*launches, strict=True)))
        print(f"median of {len(launches)}, {name}, {state}: {_in_words(median)}")


def _in_words(seconds: Launch) -> str:
    first, total, cpu = seconds
    return f"first step after {first:.1f} s and {cpu:.1f} s of CPU time, end after {total:.1f} s"


if __name__ == "__main__":
    main()
