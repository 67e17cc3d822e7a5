"""All of the paper at its own sizes on one GPU: how long it takes, and where the time goes.

python benchmarks/paper.py --mps                  Tables 2 and 3 and Figure 3, 10 seeds, 1000 episodes
python benchmarks/paper.py --mps --scale 0.1      a tenth of the training
python benchmarks/paper.py --device cpu --scale 0.001 --only amazon-clothing --seeds 2

The datasets are random graphs of the paper's exact sizes. Our two bounds, frozen and joint, and the methods
in closed form are left out, equal configurations run once, and early stopping of meta-training is off.
Nothing is there before: pre-training is part of it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
import yaml
from rich import box
from rich.console import Console
from rich.table import Table

from hagmeta.common.command import Parser, show_error
from hagmeta.common.errors import UserError, choose
from hagmeta.config.run_config import RunConfig, resolve
from study.space import spaces as spaces
from study.store.store import Store

ROOT = Path(__file__).resolve().parent.parent
DATASETS = ("amazon-clothing", "dblp", "reddit")
# The systems of the paper's Table 2.
SYSTEMS = ("hag-meta", "proto-gcn", "proto-gat", "meta-gnn", "gpn", "er-gnn", "icarl", "cec")
PHASES = ("prepare", "pretrain", "gpil", "evaluate")
SCALED_BY = {"pretrain": "pretrain_epochs", "gpil": "episodes", "evaluate": "finetune_steps"}
FULL = {name: getattr(RunConfig.of(), name) for name in SCALED_BY.values()}


@dataclass(frozen=True)
class TrialTime:
    """What one trial took, in seconds; ``share`` is the part of the machine that it had meanwhile."""

    dataset: str
    method: str
    runs: int
    share: float
    start: float  # of the clock on the wall
    seconds: float
    load: float
    phases: dict[str, float]
    gpu_bytes: int
    host_bytes: int


def main(arguments: Sequence[str] | None = None) -> int:
    console = Console(highlight=False, width=max(140, Console().width))
    try:
        options = read_options(arguments)
        folder = Path(options.results)
        space, amount = write_space(options, folder)
        say_scale(options, amount, console)
        began = time.time()
        status = launch(space, options, folder)
        ended = time.time()
    except UserError as error:
        show_error(error)
        return 2
    if status == 2:  # said already
        return 2
    store = Store(folder / space.stem)
    missing, failed = count(space, store)
    trials = read_trials(store.folder / "tune")
    if trials:
        show_trials(trials, console)
        show_time(trials, began, ended, console)
    console.print(f"{missing} runs are missing, {failed} of them failed")
    return 1 if missing else 0


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="python benchmarks/paper.py", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--scale", type=float, default=1.0, metavar="F", help="a fraction of episodes, epochs and steps")
    add("--seeds", type=int, default=10, metavar="n", help="(default: 10)")
    add("--only", action="append", metavar="DATASET", help=f"of {', '.join(DATASETS)}")
    add("--device", choices=["cuda", "cpu"], default="cuda")
    add("--mps", action="store_true", help="under NVIDIA's MPS")
    add(
        "--gpus-per-trial",
        metavar="f",
        help="the same share for all, instead of one by a bound of the memory",
    )
    add("--results", metavar="FOLDER", help="an empty or new folder (default: a temporary one)")
    options = parser.options(arguments)
    if not 0 < options.scale <= 1:
        raise UserError(f"--scale is {options.scale}; it must be above 0 and at most 1.")
    if options.device == "cpu" and (options.mps or options.gpus_per_trial):
        raise UserError("--mps and --gpus-per-trial are for --device cuda.")
    if options.device == "cuda" and not torch.cuda.device_count():
        raise UserError("there is no GPU here; --device cpu does without, at a tiny --scale.")
    names = [name.removeprefix("synthetic-") for name in options.only or DATASETS]
    options.only = [choose("dataset", name, DATASETS) for name in names]
    if options.results is None:
        options.results = tempfile.mkdtemp(prefix="paper-")
    elif Path(options.results).exists() and any(Path(options.results).iterdir()):
        raise UserError(f"--results {options.results} is not empty; what is there would not be timed.")
    return options


def write_space(options: argparse.Namespace, folder: Path) -> tuple[Path, dict[str, int]]:
    """The space `paper` on random graphs, every configuration a case; and how much of each thing is done."""
    amount = {name: max(1, round(options.scale * whole)) for name, whole in FULL.items()}
    cases = [
        {**_settings(config), "dataset": f"synthetic-{config.dataset}"}
        for config in _configs()
        if config.dataset in options.only and config.method in SYSTEMS and not _is_control(config)
    ]
    content = {
        "description": "the paper's Tables 2 and 3 and Figure 3, on random graphs of its datasets' sizes",
        "fixed": {**amount, "patience": amount["episodes"]},  # fewer validations than that: never stopped
        "cases": cases,
        "seeds": options.seeds,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "paper.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path, amount


def _configs() -> list[RunConfig]:
    """Tables 2 and 3 and Figure 3 on the paper's datasets, equal runs once; Table 3 is of one of them."""
    parts = {"comparison": DATASETS, "nway_kshot": DATASETS, "ablation": DATASETS[:1]}
    read = (spaces.read(name, datasets=datasets).configs for name, datasets in parts.items())
    return list({resolve(config): config for configs in read for config in configs}.values())


def _is_control(config: RunConfig) -> bool:
    """Whether it is there to be compared with a row of the paper's Table 3, and is none of them."""
    return config.instead_of_gpil != "nothing" or config.pretrain_on == "known"


def _settings(config: RunConfig) -> dict[str, Any]:
    values = {item.name: getattr(config, item.name) for item in fields(config)}
    return {item.name: values[item.name] for item in fields(config) if values[item.name] != item.default}


def say_scale(options: argparse.Namespace, amount: dict[str, int], console: Console) -> None:
    parts = ", ".join(f"{name} {amount[name]} of {whole}" for name, whole in FULL.items())
    console.print(f"scale {options.scale:g} ({parts}), {options.seeds} seeds, {', '.join(options.only)}")


def launch(space: Path, options: argparse.Namespace, folder: Path) -> int:
    command = [sys.executable, str(ROOT / "study" / "launch.py"), "--space", str(space), "--no-report"]
    command += ["--results", str(folder)]
    if options.device == "cpu":
        command += ["--gpus-per-trial", "0"]
    elif options.gpus_per_trial:
        command += ["--gpus-per-trial", options.gpus_per_trial]
    if options.mps:
        command.append("--mps")
    environment = {"CUDA_VISIBLE_DEVICES": "0"} | os.environ | {"HAGMETA_HOME": str(folder / "home")}
    environment["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "0"  # Tune then writes what trials report
    return subprocess.run(command, env=environment, check=False).returncode


def count(space: Path, store: Store) -> tuple[int, int]:
    """Runs without a record, and those that failed."""
    wanted = spaces.read(str(space))
    keys = {(resolve(config).hash(), seed) for config in wanted.configs for seed in wanted.seeds}
    return len(keys - store.scan().done), len(list(store.failures.glob("*/*.json")))


def read_trials(folder: Path) -> list[TrialTime]:
    """From what each trial reported to Ray Tune, and its records."""
    trials = []
    for path in sorted(folder.glob("*/result.json")):
        result, records = _read_report(path)
        if not records:  # failed
            continue
        spec = result["config"]["spec"]
        trials.append(
            TrialTime(
                dataset=spec["configs"][0]["dataset"],
                method=spec["configs"][0]["method"],
                runs=len(records),
                share=spec["gpu_share"] or spec["threads"] / (os.cpu_count() or 1),
                start=result["started"],
                seconds=result["trial_seconds"],
                load=result["load_seconds"],
                # A record has its seed's share of its pack's time, so all of them have all of it.
                phases={phase: sum(r["seconds"].get(phase, 0.0) for r in records) for phase in PHASES},
                gpu_bytes=max(r["environment"]["peak_gpu_bytes"] for r in records),
                host_bytes=max(r["environment"]["peak_memory_bytes"] for r in records),
            )
        )
    return trials


def _read_report(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the last report of a trial to Tune, and the records of its runs; none if it failed."""
    report: dict[str, Any] = json.loads(path.read_text().splitlines()[-1])
    if "started" not in report:
        return report, []
    spec, runs = report["config"]["spec"], path.parents[2] / "runs"
    keys = [(resolve(RunConfig.of(spec["configs"][place])).hash(), seed) for place, seed in spec["members"]]
    return report, [json.loads((runs / config / f"{seed}.json").read_text()) for config, seed in keys]


def show_trials(trials: list[TrialTime], console: Console) -> None:
    """Seconds as the trials saw them, side by side with others."""
    table = Table(
        title="seconds of trials, by dataset and method", box=box.SIMPLE, title_justify="left", padding=(0, 1)
    )
    for name in ("dataset", "method"):
        table.add_column(name, no_wrap=True)
    for name in ("trials", "runs", *PHASES, "reading", "in all", "wall", "at once", "GPU GB", "host GB"):
        table.add_column(name, justify="right")
    groups: dict[tuple[str, str], list[TrialTime]] = {}
    for trial in trials:
        groups.setdefault((trial.dataset.removeprefix("synthetic-"), trial.method), []).append(trial)
    for name, group in sorted(groups.items()):
        table.add_row(*name, *_row(group))
    table.add_section()
    table.add_row("all", "", *_row(trials))
    console.print(table)


def _row(trials: list[TrialTime]) -> list[str]:
    seconds, wall = sum(trial.seconds for trial in trials), _wall(trials)
    return [
        str(len(trials)),
        str(sum(trial.runs for trial in trials)),
        *(f"{sum(trial.phases[phase] for trial in trials):.1f}" for phase in PHASES),
        f"{sum(trial.load for trial in trials):.1f}",
        f"{seconds:.1f}",
        f"{wall:.1f}",
        f"{seconds / wall:.1f}",
        f"{max(trial.gpu_bytes for trial in trials) / 1e9:.2f}",
        f"{max(trial.host_bytes for trial in trials) / 1e9:.2f}",
    ]


def _wall(trials: list[TrialTime]) -> float:
    """From the first start to the last end."""
    return max(t.start + t.seconds for t in trials) - min(t.start for t in trials)


def show_time(trials: list[TrialTime], began: float, ended: float, console: Console) -> None:
    """Where the wall time went: a trial's seconds count by the share of the machine that it had."""
    wall, runs = ended - began, sum(trial.runs for trial in trials)
    first, last = min(t.start for t in trials), max(t.start + t.seconds for t in trials)
    busy, compute = _weighed(trials, lambda t: t.seconds), _compute(trials)
    host, reading = _weighed(trials, lambda t: t.phases["prepare"]), _weighed(trials, lambda t: t.load)
    table = Table(title="where the wall time went", box=box.SIMPLE, title_justify="left", show_footer=True)
    table.add_column("what", footer="wall time")
    table.add_column("seconds", footer=f"{wall:.1f}", justify="right")
    table.add_column("share", footer="100 %", justify="right")
    table.add_column("how obtained", footer="of launch.py, from its start to its end")
    for what, seconds, how in (
        ("compute", compute, "pretrain + gpil + evaluate of the records x the trial's share of the machine"),
        ("host", host, "prepare, likewise"),
        ("I/O: reading data", reading, "the trials' load_seconds, likewise"),
        ("other within trials", busy - compute - host - reading, "trial_seconds less the above, likewise"),
        ("before the first trial", first - began, "imports, checks of data, Ray's start"),
        (
            "Ray, and idle shares",
            last - first - busy,
            "first start to last end, less the trials' shares of it",
        ),
        ("after the last trial", ended - last, "summary, Ray's end"),
    ):
        table.add_row(what, f"{seconds:.1f}", f"{100 * seconds / wall:.0f} %", how)
    console.print(table)
    console.print(
        f"{runs} runs in {len(trials)} trials, {wall:.0f} s: {60 * runs / wall:.1f} runs a minute; "
        f"{sum(trial.seconds for trial in trials) / (last - first):.1f} trials at once; "
        f"peak of one trial {max(t.gpu_bytes for t in trials) / 1e9:.2f} GB on the GPU (torch's tensors), "
        f"{max(t.host_bytes for t in trials) / 1e9:.2f} GB on the host"
    )


def _weighed(trials: list[TrialTime], seconds: Callable[[TrialTime], float]) -> float:
    return sum(trial.share * seconds(trial) for trial in trials)


def _compute(trials: list[TrialTime]) -> float:
    return _weighed(trials, lambda trial: sum(trial.phases[phase] for phase in SCALED_BY))


if __name__ == "__main__":
    sys.exit(main())
