"""Is a training episode slower than in another checkout? Both measured in turns, in one go.

    git worktree add ../before COMMIT
    python benchmarks/in_turns.py ../before debian [--device cuda] [--seeds 1 10] [--turns 15]

Each checkout's own benchmarks/episode.py is loaded in a process of its own, which measures when it is its
turn. What counts is the ratio of a turn's two times: its median, and the 95 % interval of that.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy.stats import binom

ROOT = Path(__file__).resolve().parent.parent
EPISODES = 40  # a turn
WORKER = """
import sys
from pathlib import Path
import torch
import episode
from hagmeta import datasets
from hagmeta.config.run_config import RunConfig

name, device, count, episodes = sys.argv[1], torch.device(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
dataset = datasets.load(name, Path("~/.cache/hagmeta/data").expanduser())
make = getattr(RunConfig, "of", RunConfig)  # an older checkout has no `of`
prepared = episode.prepare(make(dataset=name, pretrain_epochs=0), range(count), dataset, device)
with episode.stream_of(device):
    step = episode.pack_step(prepared)
    for _ in sys.stdin:
        print(episode.seconds(prepared, episodes, step), flush=True)
"""


class Worker:
    """One checkout's process."""

    def __init__(self, checkout: Path, dataset: str, device: str, seeds: int) -> None:
        paths = [str(checkout), str(checkout / "benchmarks"), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, dataset, device, str(seeds), str(EPISODES)],
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(self) -> float:
        """Seconds of an episode, now."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def interval_of_median(values: np.ndarray) -> tuple[float, float]:
    """At least 95 %, whatever the distribution."""
    ordered, count = np.sort(values), len(values)
    outside = int(binom.ppf(0.025, count, 0.5))
    return float(ordered[max(outside - 1, 0)]), float(ordered[min(count - outside, count - 1)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="another checkout")
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--turns", type=int, default=15)
    options = parser.parse_args()
    for dataset in options.datasets:
        for seeds in options.seeds:
            checkouts = (options.before.resolve(), ROOT)
            workers = [Worker(checkout, dataset, options.device, seeds) for checkout in checkouts]
            for worker in workers:
                worker.measure()  # to warm up
            # Who goes first changes from turn to turn.
            turns = [
                [worker.measure() for worker in workers[:: 1 if turn % 2 else -1]][:: 1 if turn % 2 else -1]
                for turn in range(options.turns)
            ]
            for worker in workers:
                worker.close()
            before, now = np.array(turns).T
            ratio, (low, high) = float(np.median(now / before)), interval_of_median(now / before)
            print(
                f"{dataset}, {options.device}, {seeds} seeds, {len(turns)} turns: "
                f"{1e3 * np.median(before):.2f} ms before, {1e3 * np.median(now):.2f} now; "
                f"ratio {ratio:.3f} [{low:.3f}, {high:.3f}]",
                flush=True,
            )


if __name__ == "__main__":
    main()
