"""What Ray costs: the quick ablation through Ray Tune beside the same runs in plain processes.

python benchmarks/study_overhead.py ablation     wall time of both, pre-training warm for both, and the ratio
python benchmarks/study_overhead.py empty        throughput of 200 trials that do nothing
"""

from __future__ import annotations

import argparse
import itertools
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
    from study import connection

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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["ablation", "empty"])
    {"ablation": ablation, "empty": empty}[parser.parse_args().what]()
