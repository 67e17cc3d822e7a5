"""What Ray costs: the quick ablation through Ray Tune beside the same runs in plain processes.

python benchmarks/study_overhead.py ablation     wall time of both, pre-training warm for both, and the ratio
python benchmarks/study_overhead.py empty        throughput of 200 trials that do nothing
python benchmarks/study_overhead.py memory       KB by which the driver grows a trial, beside empty trials
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TRAINING = ("nothing", "supervised", "gpil")
ROOT = Path(__file__).resolve().parent.parent
QUICK = {"episodes": 200, "pretrain_epochs": 100, "finetune_steps": 10}  # search_spaces/ablation.yaml, quick


def plain(row: tuple[str, bool, bool]) -> None:
    """One trial's runs, without Ray: the same pack of seeds on one thread."""
    training, nla, tla = row
    instead = "nothing" if training == "gpil" else training
    changes = {"gpil": training == "gpil", "instead_of_gpil": instead, "nla": nla, "tla": tla, **QUICK}
    settings = [text for key, value in changes.items() for text in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "hagmeta", "--dataset", "debian", "--seeds", "3", *settings]
    subprocess.run(
        command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=ROOT
    )


def ablation() -> None:
    plain(("nothing", False, False))  # leaves the pre-trained encoders where both find them
    start = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(plain, itertools.product(TRAINING, (False, True), (False, True))))
    without = time.perf_counter() - start
    print(f"plain processes, {os.cpu_count()} at once: {without:.1f} s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "study" / "launch.py"), "--space", "ablation", "--quick"]
        start = time.perf_counter()
        subprocess.run(
            [*command, "--dataset", "debian", "--results", folder, "--seeds-per-trial", "3"],
            check=True,
            capture_output=True,
        )
        through_ray = time.perf_counter() - start
    print(f"through Ray Tune: {through_ray:.1f} s; ratio {through_ray / without:.2f}")


def empty() -> None:
    sys.path.insert(0, str(ROOT))
    from study.running import connection

    connection.start_ray(None, ROOT)
    from ray import tune

    def nothing(config: dict[str, Any]) -> None:
        tune.report({"accuracy": 0.0})

    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        tune.Tuner(
            tune.with_resources(nothing, {"cpu": 1}),
            param_space={"number": tune.grid_search(list(range(200)))},
            tune_config=tune.TuneConfig(reuse_actors=True),  # as studies do
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        ).fit()
        taken = time.perf_counter() - start
    print(f"200 empty trials: {taken:.1f} s, {200 / taken:.2f} a second, {os.cpu_count()} at once")


TRIALS = int(os.environ.get("TRIALS", "5000"))
MADE = """
import json, sys, tempfile
sys.path.insert(0, {root!r})
from pathlib import Path
import psutil
from rich.console import Console
from hagmeta.config.run_config import RunConfig, resolve
from study.running import connection
from study.running import tuning
from study.planning.packing import Packing
from study.planning.plan import make_plan
from study.terminal.progress import StudyProgress
from study.planning.resources import Resources
from study.store.store import Store
from ray import tune

config, made, trials = resolve(RunConfig.of()), {made!r}, {trials}
record = json.loads(Path({record!r}).read_text())[0]
record |= {{"config_hash": config.hash(), "predictions": "UEs=" * 1000}}

def trainable(spec):
    if made:
        tune.report({{"phase": "meta-train", "step": 1, "steps": 2, "meta-train/val": 0.5}})
        records = json.dumps([record | {{"seed": spec["members"][0][1]}}])
        tune.report({{"accuracy": 0.5, "records": records, "diverged": "[]", "note": "", "snapshot": None}})
    else:
        tune.report({{"accuracy": 0.0}})

connection.start_ray(None, Path({root!r}))
tuning.run_trial = trainable
marks = {{}}

class Watch(tune.Callback):
    def on_trial_complete(self, iteration, trials, trial, **info):
        done = sum(each.is_finished() for each in trials) if iteration % 50 == 0 else 0
        if done:
            marks[done] = psutil.Process().memory_info().rss

with tempfile.TemporaryDirectory() as folder:
    plan = make_plan([config], range(trials), set(), Packing(seeds=1))
    with StudyProgress(Console(quiet=True), plan.trials, 0) as progress:
        store, resources = Store(Path(folder)), Resources(1, 0, 2)
        options = tuning.TrialOptions()
        tuning.StudyRunner(store, resources, progress, options, [Watch()]).run(plan.trials)
    written = sum(path.stat().st_size for path in Path(folder, "tune").rglob("*") if path.is_file())
first = min(mark for mark in marks if mark > trials // 10)
last = max(marks)
print(json.dumps([(marks[last] - marks[first]) / (last - first) / 1e3, written / trials / 1e3]))
"""


def memory() -> None:
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.json"
        short = ["--set", "episodes=1", "--set", "pretrain_epochs=1", "--set", "finetune_steps=1"]
        command = [sys.executable, "-m", "hagmeta", "--seeds", "1", *short, "--json", str(record)]
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
        for made in (False, True):
            program = MADE.format(root=str(ROOT), made=made, trials=TRIALS, record=str(record))
            done = subprocess.run(
                [sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT
            )
            grown, written = json.loads(done.stdout.splitlines()[-1])
            kind = "with a record each" if made else "empty"
            told = f"the driver grows {grown:.1f} KB a trial, Tune's files {written:.1f} KB"
            print(f"{TRIALS} trials, {kind}: {told}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["ablation", "empty", "memory"])
    {"ablation": ablation, "empty": empty, "memory": memory}[parser.parse_args().what]()
