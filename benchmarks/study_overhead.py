"""Measure what Ray Tune costs: `python benchmarks/study_overhead.py` times 200 trials that do nothing."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TRIALS = 200


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from ray import tune

    from study.running import connection

    def nothing(config: dict[str, Any]) -> None:
        tune.report({"accuracy": 0.0})

    connection.start_ray(None, ROOT)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        tune.Tuner(
            tune.with_resources(nothing, {"cpu": 1}),
            param_space={"number": tune.grid_search(list(range(TRIALS)))},
            tune_config=tune.TuneConfig(reuse_actors=True),  # as studies do
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        ).fit()
        taken = time.perf_counter() - start
    print(f"{TRIALS} empty trials: {taken:.1f} s, {TRIALS / taken:.2f} a second, {os.cpu_count()} at once")


if __name__ == "__main__":
    main()
