"""How cost grows with the graph, and whether the largest one fits.

python benchmarks/scale.py edges  [--device cpu|cuda]    seconds an episode, 10k to 1M edges, and the slope
python benchmarks/scale.py reddit [--device cpu|cuda]    one epoch, episode and session at Reddit's size
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np
import torch
from episode import pack_step, seconds

from hagmeta import datasets
from hagmeta.config import RunConfig
from hagmeta.pipeline import prepare, run

EDGES = (10_000, 30_000, 100_000, 300_000, 1_000_000)


def edges(device: torch.device) -> None:
    times = []
    for count in EDGES:
        name = f"synthetic:nodes={count // 8},edges={count},features=500,classes=12,seed=0"
        config = RunConfig(dataset=name, classes=(4, 4, 4), n_way=2, k_shot=5, pretrain_epochs=0)
        stage = prepare(config, [0], datasets.load(name, Path()), device)
        times.append(seconds(stage, 20, pack_step(stage)))
        print(f"{count:9,} edges {1e3 * times[-1]:9.1f} ms an episode", flush=True)
    per_edge, fixed = np.polyfit(EDGES, times, 1)
    last = np.log(times[-1] / times[-2]) / np.log(EDGES[-1] / EDGES[-2])
    print(
        f"fit: {1e3 * fixed:.1f} ms + {1e9 * per_edge:.0f} ns an edge; "
        f"log-log slope of the last step {last:.2f}"
    )


def reddit(device: torch.device) -> None:
    start = time.perf_counter()
    dataset = datasets.load("synthetic-reddit", Path())
    made = time.perf_counter() - start
    print(f"made in {made:.1f} s: {dataset.num_nodes:,} nodes, {len(dataset.edges):,} edges")
    config = RunConfig(
        dataset="synthetic-reddit", pretrain_epochs=1, episodes=1, sessions=1, finetune_steps=1
    )
    for attempt in ("first", "second"):  # on a GPU the first one loads its kernels
        (record,) = run(config, [0], dataset=dataset, device=device)
        phases = ", ".join(f"{phase} {value:.2f} s" for phase, value in record["seconds"].items())
        print(f"{attempt}: {phases} (each with one validation; evaluate: sessions 0 and 1)", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"peak memory {peak / 1e9:.2f} GB, on the GPU {record['environment']['peak_gpu_bytes'] / 1e9:.2f} GB"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["edges", "reddit"])
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    {"edges": edges, "reddit": reddit}[options.what](torch.device(options.device))
