"""How the cost of a run grows with the graph and with the pack, and whether the largest graph fits.

python benchmarks/scaling.py edges  --out FOLDER    1 and 10 seeds, 10k edges to Reddit's 11.6M (CPU: 1M)
python benchmarks/scaling.py seeds  --out FOLDER    1 to 64 seeds (CPU: 16) at Amazon-Clothing's size
python benchmarks/scaling.py reddit                 an epoch, an episode and a session at Reddit's size
python benchmarks/scaling.py --draw FOLDER          the figures, from the tables in FOLDER; needs no GPU

The first three take --device cuda. Each run is a whole one, of a fixed length, in a process of its own, for
its memory's sake, and made twice: what is reported is the second, which has no kernels to load.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scaling_table import Row, peak, save

from hagmeta import datasets
from hagmeta.common.files.home import home
from hagmeta.config.run_config import RunConfig
from hagmeta.testing import records_of

EDGES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 11_606_919)
PACKS = (1, 10)
SEEDS = (1, 2, 4, 8, 16, 32, 64)
NODES = 232_965  # Reddit's, at most; an eighth of the edges
# Too few evaluations for patience to end anything early: every run takes the same steps.
LENGTH: dict[str, Any] = {"pretrain_epochs": 50, "episodes": 50, "sessions": 2, "finetune_steps": 5}
PHASES = ("prepare", "pretrain", "gpil", "evaluate")


def edges(device: str, most: int, out: Path) -> None:
    """Tell what an edge costs, beside what every run costs."""
    counts = [count for count in EDGES if count <= most]
    rows = []
    for pack in PACKS:
        for count in counts:
            nodes = min(count // 8, NODES)
            name = f"synthetic:nodes={nodes},edges={count},features=500,classes=12"
            config = RunConfig.of(dataset=name, classes=(4, 4, 4), n_way=2, k_shot=5, **LENGTH)
            rows.append(measure(config, pack, device))
            save(out / f"edges-{device}.csv", rows)
    for pack in PACKS:
        times = [row["seconds"] for row in rows if row["seeds"] == pack]
        fixed, per_edge = fit(counts, times)
        text = f"{pack} seeds: {fixed:.2f} s + {1e6 * per_edge:.2f} s a million edges"
        if len(counts) > 1:
            slope = np.log(times[-1] / times[-2]) / np.log(counts[-1] / counts[-2])
            text += f"; log-log slope of the last step {slope:.2f}"
        print(text)


def fit(counts: list[int], times: list[float]) -> tuple[float, float]:
    """A fixed cost and one an edge, neither below zero, of the least relative errors."""
    from scipy.optimize import nnls

    design = np.stack([np.ones(len(counts)), counts], axis=1) / np.array(times)[:, None]
    fixed, per_edge = nnls(design, np.ones(len(counts)))[0]
    return float(fixed), float(per_edge)


def seeds(device: str, most: int, out: Path) -> None:
    """Tell what a further seed in the pack costs, beside a run of its own."""
    config = RunConfig.of(dataset="synthetic-amazon-clothing", **LENGTH)
    rows: list[Row] = []
    for pack in SEEDS:
        if pack <= most:
            rows.append(measure(config, pack, device))
            save(out / f"seeds-{device}.csv", rows)
            times = rows[-1]["seconds"] / rows[0]["seconds"]
            print(f"    {times:.2f} times one seed, {times / pack:.2f} a seed", flush=True)


def measure(config: RunConfig, pack: int, device: str) -> Row:
    """One row of a table, out of a process of its own; printed, too."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as process:
        row = process.submit(second_run, config, pack, device).result()
    print(
        f"{row['edges']:10,} edges {pack:3} seeds {row['seconds']:8.2f} s ("
        + ", ".join(f"{phase} {row[phase]:.2f}" for phase in PHASES)
        + f")  {peak(row) / 1e6:,.0f} MB",
        flush=True,
    )
    return row


def second_run(config: RunConfig, pack: int, device: str) -> Row:
    """Seconds, of the whole pack, and peaks of memory."""
    dataset = datasets.load(config.dataset, home() / "data")
    for _ in range(2):
        record = records_of(config, range(pack), dataset, torch.device(device))[0]
    phases = {phase: record["seconds"][phase] * pack for phase in PHASES}  # a record has its seed's share
    environment = record["environment"]
    return {
        "machine": environment["device"],
        "threads": environment["threads"],
        "nodes": dataset.num_nodes,
        "edges": len(dataset.edges),
        "seeds": pack,
        **phases,
        "seconds": sum(phases.values()),
        "peak_gpu_bytes": environment["peak_gpu_bytes"],
        "peak_memory_bytes": environment["peak_memory_bytes"],
    }


def reddit(device: str) -> None:
    """One step of each phase, at a size where a whole run would take hours on a CPU."""
    start = time.perf_counter()
    dataset = datasets.load("synthetic-reddit", home() / "data")
    loaded = time.perf_counter() - start
    print(f"loaded in {loaded:.1f} s: {dataset.num_nodes:,} nodes, {len(dataset.edges):,} edges")
    config = RunConfig.of(
        dataset="synthetic-reddit", pretrain_epochs=1, episodes=1, sessions=1, finetune_steps=1
    )
    for attempt in ("first", "second"):
        (record,) = records_of(config, [0], dataset, torch.device(device))
        phases = ", ".join(f"{phase} {value:.2f} s" for phase, value in record["seconds"].items())
        print(f"{attempt}: {phases} (each with one validation; evaluate: sessions 0 and 1)", flush=True)
    print(
        f"peak memory {record['environment']['peak_memory_bytes'] / 1e9:.2f} GB, "
        f"on the GPU {record['environment']['peak_gpu_bytes'] / 1e9:.2f} GB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["edges", "seeds", "reddit"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--most-edges", type=int, metavar="E")
    parser.add_argument("--most-seeds", type=int, metavar="S")
    parser.add_argument("--out", type=Path, default=Path("results/scaling"), metavar="FOLDER")
    parser.add_argument("--draw", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    on_cpu = options.device == "cpu"
    if options.what == "edges":
        most_edges = options.most_edges or (1_000_000 if on_cpu else EDGES[-1])
        edges(options.device, most_edges, options.out)
    elif options.what == "seeds":
        seeds(options.device, options.most_seeds or (16 if on_cpu else SEEDS[-1]), options.out)
    elif options.what == "reddit":
        reddit(options.device)
    elif options.draw is None:
        parser.error("give edges, seeds, reddit or --draw FOLDER")
    if options.draw:
        from scaling_figure import draw  # matplotlib may be missing where the GPU is

        draw(options.draw)


if __name__ == "__main__":
    main()
